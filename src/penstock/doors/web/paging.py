"""One page of very many names, in order, without keeping anyone waiting: a slice in each turn of the loop."""

from asyncio import sleep
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from msgspec import Struct

NAMES_A_SLICE = 250
ROWS_A_SLICE = 200

T = TypeVar("T")
R = TypeVar("R")


class Page(Struct, frozen=True):
    """The names of a page, how many there are on all pages, and the last name if there is more."""

    names: list[str]
    matching: int
    next: str | None


async def find_page(
    names: Iterable[str | None], is_wanted: Callable[[str], bool], after: str, limit: int
) -> Page:
    """The first names after one, by their order. Names may come in any order, None stands for none.

    No order is kept for all names: to look at each of them is needed anyway to count them, and takes less
    than to keep up with those that come and go.
    """
    found: list[str] = []
    matching = 0
    remaining = iter(names)
    while part := list(islice(remaining, NAMES_A_SLICE)):
        wanted = [name for name in part if name is not None and is_wanted(name)]
        matching += len(wanted)
        found += [name for name in wanted if name > after]
        found.sort()
        del found[limit + 1 :]
        await sleep(0)
    has_more = len(found) > limit
    return Page(found[:limit], matching, found[limit - 1] if has_more else None)


async def make_rows(items: Sequence[T], make: Callable[[T], R | None]) -> list[R]:
    """A row of each item that there is one of."""
    rows: list[R] = []
    for start in range(0, len(items), ROWS_A_SLICE):
        made = map(make, items[start : start + ROWS_A_SLICE])
        rows += [row for row in made if row is not None]
        await sleep(0)
    return rows
