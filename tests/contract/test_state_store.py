"""What every state store owes: the last record of each key, and numbered records in their order."""

from collections.abc import AsyncIterator
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
from penstock.core.sessions.will import Will
from penstock.core.subscriptions.subscription import Options
from penstock.model import Door, Policy
from tests.contract.storages import STORAGES, OpenStorage, Storage


@pytest.fixture(params=STORAGES)
def open_storage(request: pytest.FixtureRequest) -> OpenStorage:
    return STORAGES[request.param]


@pytest.fixture
async def storage(open_storage: OpenStorage, tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(tmp_path / "data") as storage:
        yield storage


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


async def test_records_come_back_as_they_were(store: StateStore) -> None:
    store.put(SESSIONS, "c", record())
    store.put(BEHIND, "c", BehindRecord(9))
    assert scan(store, SESSIONS) == {"c": record()}
    assert scan(store, BEHIND) == {"c": BehindRecord(9)}


@pytest.mark.parametrize("seed", range(5))
async def test_a_table_behaves_like_a_dictionary_whatever_is_committed(storage: Storage, seed: int) -> None:
    chance, store = Random(seed), storage.state
    model: dict[str, Struct] = {}
    for number in range(60):
        key = chance.choice("abcd")
        if chance.random() < 0.7:
            store.put(SESSIONS, key, record(number))
            model[key] = record(number)
        else:
            store.delete(SESSIONS, key)
            model.pop(key, None)
        if chance.random() < 0.2:
            await storage.commit(0)
        assert scan(store, SESSIONS) == model


async def test_deleting_what_is_not_there_changes_nothing(store: StateStore) -> None:
    store.delete(SESSIONS, "nobody")
    store.put(SESSIONS, "c", record())
    store.delete(SESSIONS, "nobody")
    store.delete(BEHIND, "c")
    assert list(scan(store, SESSIONS)) == ["c"]


@pytest.mark.parametrize("key", ["", "a/b", "é", "a\u0001b", "a\u0000b", "\ud800", "x" * 1_000])
async def test_any_text_is_a_key(storage: Storage, key: str) -> None:
    for _ in range(2):
        storage.state.put(SESSIONS, key, record())
        assert scan(storage.state, SESSIONS) == {key: record()}
        await storage.commit(0)


async def test_a_scan_survives_changes_made_while_it_runs(store: StateStore) -> None:
    for key in "abc":
        store.put(SESSIONS, key, record())
    seen = []
    for number, (key, _) in enumerate(store.scan(SESSIONS)):
        seen.append(key)
        if not number:
            store.delete(SESSIONS, "b")
            store.put(SESSIONS, "d", record())
            store.put(SESSIONS, "e", record())
    assert {key for key in seen if key in "ac"} == {"a", "c"}  # those that stood there all the time
    assert sorted(scan(store, SESSIONS)) == ["a", "c", "d", "e"]


async def test_a_paused_subscription_is_there_again_as_it_was(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    paused = PausedRecord("ann", "c", ("a", "b/#"), 300.0, 7, 2, 1_000_000, True, 5, 3, {"a": (4, 1)})
    async with open_storage(tmp_path) as storage:
        storage.state.put(PAUSED, "sub", paused)
        await storage.commit(0)
        is_durable = storage.log.is_durable
        assert scan(storage.state, PAUSED) == {"sub": paused}
    async with open_storage(tmp_path) as storage:
        assert scan(storage.state, PAUSED) == ({"sub": paused} if is_durable else {})


# Records with numbers


async def test_numbers_rise_and_records_come_back_by_them(storage: Storage) -> None:
    store = storage.state
    numbers = []
    for number in range(300):
        numbers.append(store.append(MOVES, moves(number)))
        if number % 70 == 0:
            await storage.commit(0)
    assert numbers == sorted(set(numbers))
    assert list(store.replay(MOVES)) == [(number, moves(place)) for place, number in enumerate(numbers)]
    assert scan(store, SESSIONS) == {}


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_cut_removes_what_has_lower_numbers_and_no_number_is_given_again(
    storage: Storage, is_committed: bool
) -> None:
    store = storage.state
    numbers = [store.append(MOVES, moves(number)) for number in range(10)]
    if is_committed:
        await storage.commit(0)
    store.cut(MOVES, numbers[4])
    assert [number for number, _ in store.replay(MOVES)] == numbers[4:]
    store.cut(MOVES, numbers[-1] + 1)
    await storage.commit(0)
    assert list(store.replay(MOVES)) == []
    assert store.append(MOVES, moves(0)) > numbers[-1]


async def test_what_was_committed_is_there_again_if_the_store_is_durable(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    async with open_storage(tmp_path) as storage:
        storage.state.put(SESSIONS, "c", record())
        number = storage.state.append(MOVES, moves(1))
        await storage.commit(0)
        is_durable = storage.log.is_durable
    async with open_storage(tmp_path) as storage:
        assert scan(storage.state, SESSIONS) == ({"c": record()} if is_durable else {})
        assert list(storage.state.replay(MOVES)) == ([(number, moves(1))] if is_durable else [])
        assert not is_durable or storage.state.append(MOVES, moves(2)) > number
