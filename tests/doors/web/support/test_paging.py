"""Pages of very many names: in order, complete, and with a rest for everyone else in between."""

from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

import pytest

from penstock.doors.web.support.paging import NAMES_A_SLICE, ROWS_A_SLICE, Page, find_page, make_rows

T = TypeVar("T")


def turn(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """Run something that rests now and then; answer what it gives, and how often it rested."""
    rests = 0
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value, rests
        rests += 1


def anything(name: str) -> bool:
    return True


@pytest.mark.parametrize("limit", [1, 7, 100, 5_000])
def test_pages_have_every_name_once_and_in_order(limit: int) -> None:
    names = [f"{number:05}" for number in range(2_000)]
    mixed = Random(1).sample(names, len(names))
    found: list[str] = []
    after = ""
    for _ in range(len(names) // limit + 1):
        page, _ = turn(find_page(mixed, anything, after, limit))
        assert page.matching == len(names)
        found += page.names
        if page.next is None:
            break
        assert page.next == page.names[-1]
        after = page.next
    assert found == names


def test_names_that_are_not_wanted_are_neither_given_nor_counted() -> None:
    page, _ = turn(find_page(["a", None, "b", "c"], lambda name: name != "b", "", 10))
    assert page == Page(["a", "c"], 2, None)


def test_others_have_their_turn_after_every_slice() -> None:
    _, rests = turn(find_page(["x"] * (10 * NAMES_A_SLICE), anything, "", 1))
    assert rests == 10
    rows, rests = turn(make_rows(list(range(10 * ROWS_A_SLICE)), lambda number: number or None))
    assert rests == 10
    assert rows == list(range(1, 10 * ROWS_A_SLICE))
