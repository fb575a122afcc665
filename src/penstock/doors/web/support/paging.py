"""Pages and lists of very many names, built in slices: one in each turn of the loop."""

from asyncio import sleep
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from msgspec import Struct
from starlette.responses import StreamingResponse

from penstock.doors.web.support.responses import UNSNIFFED
from penstock.net.http.errors import JSON

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
    """Return the first names after one, sorted. Names may come in any order; None is skipped.

    No sorted index is kept: all names have to be counted anyway, and that costs less than keeping an index.
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


def list_names(
    names: Iterable[str], part_of: Callable[[str], bytes | None], begin: bytes, end: bytes
) -> StreamingResponse:
    """A response of the parts that names have, with commas between them; of some there may be none."""
    return StreamingResponse(
        _pieces(iter(names), part_of, begin, end), headers=dict(UNSNIFFED), media_type=JSON
    )


async def _pieces(
    names: Iterable[str], part_of: Callable[[str], bytes | None], begin: bytes, end: bytes
) -> AsyncIterator[bytes]:
    before, remaining = begin, iter(names)
    while some := list(islice(remaining, NAMES_A_SLICE)):
        parts = [part for part in map(part_of, some) if part is not None]
        if parts:
            yield before + b",".join(parts)
            before = b","
        await sleep(0)
    yield end if before == b"," else begin + end
