"""JSON of very many names, written while it is made: a slice of names in each turn of the loop."""

from asyncio import sleep
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice

from starlette.responses import StreamingResponse

from penstock.doors.http.problems import JSON
from penstock.doors.web.answers import UNSNIFFED
from penstock.doors.web.paging import NAMES_A_SLICE


def list_names(
    names: Iterable[str], part_of: Callable[[str], bytes | None], begin: bytes, end: bytes
) -> StreamingResponse:
    """An answer of the parts that names have, with commas between them; of some there may be none."""
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
