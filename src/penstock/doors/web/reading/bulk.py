"""Bulk read: the log as one Arrow stream, read ahead by one chunk, written in small pieces.

The log returns complete streams of one schema. The schema is sent once, then the rest of each. The last
batch has no rows and carries the statement. A response without a statement is incomplete: an error in the
middle aborts the connection, so that a part is not mistaken for the whole.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import structlog
from msgspec import Struct, json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.common.statement import Gap, Statement
from penstock.core.ports.archive import Archive, ArrowSpan
from penstock.core.ports.log import Wanted
from penstock.doors.web.reading.positions import LogPositions, LogRange
from penstock.doors.web.support.schemas import statement_shape
from penstock.errors import PenstockError, QuotaExceeded
from penstock.net.http.asgi import PATIENCE_KEY
from penstock.wire.arrow import END, MEDIA_TYPE, STATEMENT_KEY, cut

log = structlog.get_logger("penstock.web")

AFTER_HEADER = "Penstock-After"
CHUNK_BYTES = 2 << 20
"""Approximate size of a read; each reader has two in memory."""
PIECE_BYTES = 256 << 10
"""Bytes written at once, so that others get their turn in between."""


class ReaderSlots:
    """Slots for bulk readers.

    One user has half of them at most. Where users have different rights, the last slot is for those who
    may see everything, so that operators can always read.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._by_user: Counter[str | None] = Counter()

    @contextmanager
    def one(self, user: str | None, *, is_admin: bool) -> Iterator[None]:
        """Have a seat inside.

        Raises:
            QuotaExceeded: all that are for this user are taken.
        """
        # Where anonymous clients may see everything there are no users, and no slot is reserved.
        limit = self._limit()
        most = limit if user is None and is_admin else max(limit // 2, 1)
        if self._by_user[user] >= most:
            raise QuotaExceeded(f"this user reads the log {most} times at once already")
        if self._by_user.total() >= (limit if is_admin else max(limit - 1, 1)):
            raise QuotaExceeded("too many others are reading the log")
        self._by_user[user] += 1
        try:
            yield
        finally:
            self._by_user[user] -= 1
            self._by_user += Counter()  # users without slots are forgotten


class BulkRequest(Struct, frozen=True):
    """Requested part of the log."""

    stretch: LogRange
    wanted: Wanted
    columns: Sequence[str] | None
    limit_rows: int | None


class BulkRead:
    """One read of the log, chunk by chunk."""

    def __init__(self, archive: Archive, places: LogPositions, wish: BulkRequest) -> None:
        self._archive = archive
        self._places = places
        self._wish = wish
        self._position = wish.stretch.after
        self._served = 0
        self._gaps = [*wish.stretch.lost, *wish.stretch.lost_at_end]
        self._has_schema = False

    @property
    def after(self) -> str:
        """The cursor it began at."""
        return self._places.cursor(self._wish.stretch.after).encode()

    async def read(self) -> ArrowSpan | None:
        """Return the next piece; None at the end."""
        wish, room = self._wish, None
        if wish.limit_rows is not None:
            room = wish.limit_rows - self._served
        until = min(wish.stretch.until, self._archive.last_offset)
        if self._position >= until or room == 0:
            return None
        span = await self._archive.arrow(self._position, until, CHUNK_BYTES, wish.wanted, wish.columns, room)
        self._position = span.until
        self._served += span.rows
        for gap in span.gaps:
            self._note(gap)
        return span

    def _note(self, gap: Gap) -> None:
        last = self._gaps[-1] if self._gaps else None
        if last is not None and last.last + 1 == gap.first and last.reason is gap.reason:
            self._gaps[-1] = Gap(last.first, gap.last, gap.reason)
        else:
            self._gaps.append(gap)

    def bodies(self, streams: Iterable[bytes]) -> Iterator[memoryview]:
        """Return the parts of complete streams that belong into the joined one."""
        for stream in streams:
            parts = cut(stream)
            if not self._has_schema:
                self._has_schema = True
                yield parts.schema
            yield parts.body

    async def end(self) -> bytes:
        """The last bytes of the stream."""
        statement = json.encode(statement_shape(self._statement())).decode()
        stream = await self._archive.arrow_end(self._wish.columns, {STATEMENT_KEY: statement})
        return b"".join((*self.bodies((stream,)), END))

    def _statement(self) -> Statement:
        cursor = self._places.cursor
        return Statement(
            cursor(self._wish.stretch.after),
            cursor(self._position),
            self._served,
            is_at_head=self._position >= self._archive.last_offset,
            gaps=tuple(self._gaps),
        )


class BulkResponse(Response):
    """A response that is sent as fast as it is taken, and no faster."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        read: BulkRead,
        seat: AbstractContextManager[None],
        check_rights: Callable[[], None],
        patience_s: float,
    ) -> None:
        """Args:
        seat: what the reader has while it reads.
        check_rights: raises when the reader may not read this any more.
        patience_s: how long it may take nothing before it is cut off.
        """
        super().__init__(headers={AFTER_HEADER: read.after, "Cache-Control": "no-store"})
        del self.headers["content-length"]  # not sent yet
        self._read = read
        self._seat = seat
        self._check_rights = check_rights
        self._patience_s = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._seat:
            span = await self._read.read()  # an error can still be reported now
            leaving = asyncio.ensure_future(_until_gone(receive))
            try:
                await send(
                    {
                        "type": "http.response.start",
                        "status": 200,
                        "headers": self.raw_headers,
                        PATIENCE_KEY: self._patience_s,
                    }
                )
                await self._send_all(span, send, leaving)
            except PenstockError as error:  # a response that is left without its end is cut off
                log.warning("a read of the log was cut off", reason=str(error))
            finally:
                leaving.cancel()

    async def _send_all(self, span: ArrowSpan | None, send: Send, leaving: asyncio.Future[None]) -> None:
        while span is not None:
            ahead = asyncio.ensure_future(self._read.read())
            try:
                for piece in in_pieces(self._read.bodies(span.streams)):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    if leaving.done():
                        return
                    await asyncio.sleep(0)  # a fast reader takes everything at once, and others are waiting
                span = await ahead
            finally:
                ahead.cancel()
            self._check_rights()
        end = await self._read.end()
        await send({"type": "http.response.body", "body": end, "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def in_pieces(parts: Iterable[memoryview]) -> Iterator[bytes]:
    """The same bytes in pieces of a useful size."""
    gathered: list[memoryview] = []
    room = PIECE_BYTES
    for part in parts:
        while part:
            gathered.append(part[:room])
            part = part[room:]  # noqa: PLW2901 - it is used up piece by piece
            room -= len(gathered[-1])
            if not room:
                yield b"".join(gathered)
                gathered, room = [], PIECE_BYTES
    if gathered:
        yield b"".join(gathered)
