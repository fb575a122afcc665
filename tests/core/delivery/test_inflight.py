"""Deliveries on their way: numbers that are never given twice, and a window."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.delivery.inflight import LAST_NUMBER, Inflight, Pending
from penstock.core.delivery.policy import Limits
from penstock.core.ports.connection import Encoding
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedEncoding, SharedGroup, group_of, is_shared
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_run

FORM = PlainEncoding(qos=2)


def add(inflight: Inflight, one: Pending) -> int:
    """Put one delivery on its way, and read its number off what would be written."""
    parts: list[bytes] = []
    inflight.add_all([(b"before", b"after", one.run)], one.encoding, one.level, parts)
    assert (parts[0], parts[2]) == (b"before", b"after")
    return int.from_bytes(parts[1], "big")


def pending(sequence: int = 1, level: int = 1, encoding: Encoding = FORM) -> Pending:
    return Pending(make_run("a", b"x", qos=level, sequence=sequence), encoding, level)


@given(st.lists(st.tuples(st.sampled_from(("add", "release", "complete")), st.integers(1, 6)), max_size=60))
def test_the_window_behaves_like_a_dictionary_of_numbers(steps: list[tuple[str, int]]) -> None:
    inflight = Inflight(5)
    model: dict[int, str] = {}
    for step, which in steps:
        if step == "add":
            number = add(inflight, pending())
            assert number not in model
            assert 1 <= number <= LAST_NUMBER
            model[number] = "sent"
        elif step == "release":
            assert inflight.confirm(which) == (which in model)
            if which in model:
                model[which] = "released"
        else:
            assert inflight.complete(which) == (which in model)
            model.pop(which, None)
        assert len(inflight) == len(model)
        assert inflight.room == max(5 - len(model), 0)
        assert list(inflight.entries) == list(model)
        released = [number for number, entry in inflight.entries.items() if entry is None]
        assert released == [number for number, state in model.items() if state == "released"]


def test_numbers_rise_so_that_a_late_answer_meets_no_new_delivery() -> None:
    inflight = Inflight(1)
    numbers = []
    for _ in range(5):
        numbers.append(add(inflight, pending()))
        inflight.complete(numbers[-1])
    assert numbers == [1, 2, 3, 4, 5]


def test_after_the_last_number_comes_the_first_that_is_free() -> None:
    inflight = Inflight(LAST_NUMBER)
    for _ in range(LAST_NUMBER):
        add(inflight, pending())
    assert inflight.room == 0
    for number in (2, 5, LAST_NUMBER):
        inflight.complete(number)
    assert [add(inflight, pending()) for _ in range(3)] == [2, 5, LAST_NUMBER]


def test_a_client_that_comes_back_with_a_smaller_window_has_no_room_rather_than_less_than_none() -> None:
    inflight = Inflight(10)
    for _ in range(8):
        add(inflight, pending())
    inflight.limit = 3
    assert inflight.room == 0
    for number in range(1, 7):
        inflight.complete(number)
    assert inflight.room == 1


def test_a_number_is_held_until_a_released_delivery_is_complete() -> None:
    inflight = Inflight(1)
    number = add(inflight, pending(level=2))
    assert inflight.confirm(number)
    assert inflight.room == 0
    assert inflight.entries == {number: None}
    assert inflight.complete(number)
    assert not inflight.complete(number)
    assert inflight.room == 1


def test_only_what_came_at_qos_1_through_a_shared_group_is_taken_for_others_in_order() -> None:
    group = SharedGroup[Session]("$share/g/a", "a", Limits(1, 1))
    shared = SharedEncoding(FORM, group)
    inflight = Inflight(10)
    add(inflight, pending(1, encoding=shared))
    add(inflight, pending(2))  # its own
    add(inflight, pending(3, level=2, encoding=shared))  # stays with this session
    released = add(inflight, pending(4, level=2, encoding=shared))
    inflight.confirm(released)
    add(inflight, pending(5, encoding=shared))
    assert [(run.sequence, group_of(encoding)) for run, encoding in inflight.take_qos1(is_shared)] == [
        (1, group),
        (5, group),
    ]
    assert list(inflight.entries) == [2, 3, 4]
    assert inflight.take_qos1(is_shared) == []


def test_what_has_not_left_is_taken_back_with_everything_behind_it() -> None:
    journal: list[Any] = []
    inflight = Inflight(10, journal)
    for sequence in range(1, 6):
        add(inflight, pending(sequence, level=2))
    inflight.confirm(5)
    steps = len(journal)
    assert [each.run.sequence for each in inflight.take_from(3)] == [3, 4]
    assert list(inflight.entries) == [1, 2, 5]
    assert len(journal) == steps + 2
    assert inflight.take_from(3) == []
    assert add(inflight, pending(6)) == 6


def test_the_first_number_is_told_and_none_if_nothing_left() -> None:
    inflight = Inflight(10)
    frames = [(b"", b"", make_run("a", b"x", qos=1)) for _ in range(3)]
    assert inflight.add_all([], FORM, 1, []) == 0
    assert inflight.add_all(frames, FORM, 1, parts := [b"before"]) == 1
    assert inflight.add_all(frames, FORM, 1, parts) == 4
