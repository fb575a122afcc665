"""What every state store owes: the last record of each key, and numbered records in their order."""

from pathlib import Path
from random import Random

import pytest
from msgspec import Struct

from penstock.core.durability.records import (
    BEHIND,
    MOVES,
    PAUSED,
    SESSIONS,
    BehindRecord,
    MovesRecord,
    PausedRecord,
    SessionRecord,
    SubscriptionRecord,
)
from penstock.core.ports.state import StateStore
from penstock.core.subscriptions.subscription import Options
from penstock.model import Door, Policy, Will
from tests.contract.storages import OpenStorage, Storage
from tests.support.turns import end_turn


@pytest.fixture
def store(storage: Storage) -> StateStore:
    return storage.state


def record(expiry: float = 1.0) -> SessionRecord:
    wishes = {"a/+": SubscriptionRecord(Options(qos=1), Policy.DROP_NEWEST, 7)}
    return SessionRecord("ann", True, Door.MQTT, expiry, wishes, Will("w", b"gone", 1, True))


def moves(number: int) -> MovesRecord:
    return MovesRecord({"c": [number, "x"]})


def scan(store: StateStore, table: str) -> dict[str, Struct]:
    return dict(store.scan(table))


# Records with keys


async def test_a_new_store_has_no_records(store: StateStore) -> None:
    assert scan(store, SESSIONS) == {}
    assert list(store.replay(MOVES)) == []


async def test_records_come_back_as_they_were(storage: Storage) -> None:
    storage.turn.put(SESSIONS, "c", record())
    storage.turn.put(BEHIND, "c", BehindRecord(9))
    assert scan(storage.state, SESSIONS) == {"c": record()}
    assert scan(storage.state, BEHIND) == {"c": BehindRecord(9)}


@pytest.mark.parametrize("seed", range(5))
async def test_a_table_behaves_like_a_dictionary_whatever_is_committed(storage: Storage, seed: int) -> None:
    chance = Random(seed)
    model: dict[str, Struct] = {}
    for number in range(60):
        key = chance.choice("abcd")
        if chance.random() < 0.7:
            storage.turn.put(SESSIONS, key, record(number))
            model[key] = record(number)
        else:
            storage.turn.delete(SESSIONS, key)
            model.pop(key, None)
        if chance.random() < 0.1:
            end_turn(storage.log, is_urgent=False)  # is over, and need not be committed yet
        if chance.random() < 0.2:
            await storage.commit()
        assert scan(storage.state, SESSIONS) == model


async def test_deleting_what_is_not_there_changes_nothing(storage: Storage) -> None:
    storage.turn.delete(SESSIONS, "nobody")
    storage.turn.put(SESSIONS, "c", record())
    storage.turn.delete(SESSIONS, "nobody")
    storage.turn.delete(BEHIND, "c")
    assert list(scan(storage.state, SESSIONS)) == ["c"]


@pytest.mark.parametrize("key", ["", "a/b", "é", "a\u0001b", "a\u0000b", "\ud800", "x" * 1_000])
async def test_any_text_is_a_key(storage: Storage, key: str) -> None:
    for _ in range(2):
        storage.turn.put(SESSIONS, key, record())
        assert scan(storage.state, SESSIONS) == {key: record()}
        await storage.commit()


async def test_a_scan_survives_changes_made_while_it_runs(storage: Storage) -> None:
    for key in "abc":
        storage.turn.put(SESSIONS, key, record())
    seen = []
    for number, (key, _) in enumerate(storage.state.scan(SESSIONS)):
        seen.append(key)
        if not number:
            storage.turn.delete(SESSIONS, "b")
            storage.turn.put(SESSIONS, "d", record())
            storage.turn.put(SESSIONS, "e", record())
    assert {key for key in seen if key in "ac"} == {"a", "c"}  # those that stood there all the time
    assert sorted(scan(storage.state, SESSIONS)) == ["a", "c", "d", "e"]


async def test_a_paused_subscription_is_there_again_as_it_was(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    paused = PausedRecord("ann", "c", ("a", "b/#"), 300.0, 7, 2, 1_000_000, True, 5, 3, {"a": (4, 1)})
    async with open_storage(tmp_path) as storage:
        storage.turn.put(PAUSED, "sub", paused)
        await storage.commit()
        is_durable = storage.log.is_durable
        assert scan(storage.state, PAUSED) == {"sub": paused}
    async with open_storage(tmp_path) as storage:
        assert scan(storage.state, PAUSED) == ({"sub": paused} if is_durable else {})


# Records with numbers


async def test_numbered_records_come_back_in_their_order(storage: Storage) -> None:
    for number in range(300):
        storage.turn.put(MOVES, number, moves(number))
        if number % 70 == 0:
            await storage.commit()
    assert list(storage.state.replay(MOVES)) == [(number, moves(number)) for number in range(300)]
    assert scan(storage.state, SESSIONS) == {}


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_cut_removes_what_has_lower_numbers(storage: Storage, is_committed: bool) -> None:
    for number in range(10):
        storage.turn.put(MOVES, number, moves(number))
    if is_committed:
        await storage.commit()
    storage.turn.cut(MOVES, 4)
    assert [number for number, _ in storage.state.replay(MOVES)] == [4, 5, 6, 7, 8, 9]
    storage.turn.cut(MOVES, 3)  # changes nothing
    storage.turn.put(MOVES, 10, moves(10))
    await storage.commit()
    assert [number for number, _ in storage.state.replay(MOVES)] == [4, 5, 6, 7, 8, 9, 10]
    storage.turn.cut(MOVES, 11)
    await storage.commit()
    assert list(storage.state.replay(MOVES)) == []


async def test_what_was_committed_is_there_again_if_the_store_is_durable(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    async with open_storage(tmp_path) as storage:
        storage.turn.put(SESSIONS, "c", record())
        storage.turn.put(MOVES, 7, moves(1))
        await storage.commit()
        is_durable = storage.log.is_durable
    async with open_storage(tmp_path) as storage:
        assert scan(storage.state, SESSIONS) == ({"c": record()} if is_durable else {})
        assert list(storage.state.replay(MOVES)) == ([(7, moves(1))] if is_durable else [])
