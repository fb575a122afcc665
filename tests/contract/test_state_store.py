"""What every state store owes: the last record of each key, in the order in which keys came.

A new implementation is one more line in `STORES`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from penstock.core.node import SessionRecord
from penstock.core.ports import StateStore
from penstock.core.sessions import Options, Will
from penstock.model import Door
from penstock.storage.memory import MemoryStateStore
from penstock.testing import make_run

STORES: dict[str, Callable[[Path], StateStore]] = {
    "memory": lambda folder: MemoryStateStore(),
}


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest) -> Callable[[Path], StateStore]:
    return STORES[request.param]


@pytest.fixture
def store(open_store: Callable[[Path], StateStore], tmp_path: Path) -> StateStore:
    return open_store(tmp_path)


def record(expiry: float = 1.0) -> SessionRecord:
    return SessionRecord("ann", Door.MQTT, expiry, {"a/+": Options(qos=1)}, Will("w", b"gone", 1, True))


def scan(store: StateStore, table: str) -> list[tuple[str, Struct]]:
    return list(store.scan(table))


def test_a_new_store_has_no_records(store: StateStore) -> None:
    assert scan(store, "sessions") == []


def test_records_come_back_as_they_were(store: StateStore) -> None:
    value = make_run("a", b"1", retain=True, sequence=4, offset=9, client_id="c", expires_at=5.0)
    store.put("sessions", "c", record())
    store.put("retained", "a", value)
    assert scan(store, "sessions") == [("c", record())]
    assert scan(store, "retained") == [("a", value)]


steps = st.lists(
    st.tuples(st.sampled_from(("put", "put", "delete")), st.sampled_from("abcd"), st.integers(0, 9)),
    min_size=5,
    max_size=40,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_a_table_behaves_like_a_dictionary(store: StateStore, todo: list[tuple[str, str, int]]) -> None:
    for key, _ in scan(store, "sessions"):
        store.delete("sessions", key)
    model: dict[str, Struct] = {}
    for what, key, value in todo:
        if what == "put":
            store.put("sessions", key, record(value))
            model[key] = record(value)
        else:
            store.delete("sessions", key)
            model.pop(key, None)
        assert scan(store, "sessions") == list(model.items())


def test_a_replaced_record_keeps_its_place_and_a_deleted_one_loses_it(store: StateStore) -> None:
    for key in "abc":
        store.put("sessions", key, record())
    store.put("sessions", "a", record(2.0))
    store.delete("sessions", "b")
    store.put("sessions", "b", record())
    assert [key for key, _ in scan(store, "sessions")] == ["a", "c", "b"]


def test_deleting_what_is_not_there_changes_nothing(store: StateStore) -> None:
    store.delete("sessions", "nobody")
    store.put("sessions", "c", record())
    store.delete("sessions", "nobody")
    store.delete("retained", "c")
    assert [key for key, _ in scan(store, "sessions")] == ["c"]


@pytest.mark.parametrize("key", ["", "a/b", "é", "a\u0001b", "x" * 1_000])
def test_any_text_is_a_key(store: StateStore, key: str) -> None:
    store.put("sessions", key, record())
    assert scan(store, "sessions") == [(key, record())]


def test_a_scan_survives_changes_made_while_it_runs(store: StateStore) -> None:
    for key in "abc":
        store.put("sessions", key, record())
    seen = []
    for key, _ in store.scan("sessions"):
        seen.append(key)
        if key == "a":
            store.delete("sessions", "b")
            store.put("sessions", "d", record())
            store.put("sessions", "e", record())
    assert [key for key in seen if key in "ac"] == ["a", "c"]  # those that stood there all the time
    assert [key for key, _ in scan(store, "sessions")] == ["a", "c", "d", "e"]
