"""Reads what the log still has of the same messages, to compare the lake with it."""

from collections.abc import Iterator

from msgspec import Struct

from penstock.client import HttpClient
from penstock.errors import InvalidRequest, PenstockError
from penstock.pipeline.jobs.audit.evidence import GAP, READ, Evidence
from penstock.pipeline.jobs.audit.runs import NUMBERS, Rows, Stretch
from penstock.pipeline.source.connection import BUSY_FOR_S, Connection, Patience
from penstock.pipeline.source.offsets import cursor_at, position_of

LOG = ""
"""Where a file has its path."""


class LogPart(Struct, frozen=True):
    """Part of the log, which one task reads."""

    after: str
    until: str


class LogSide(Struct, frozen=True, kw_only=True):
    """How the log is read; the same for all its parts."""

    connection: Connection
    filters: tuple[str, ...]
    stretch: Stretch

    def look(self, part: LogPart) -> Iterator[Evidence]:
        """The runs of a part, and what the log cannot serve of it."""
        patience = Patience(self.connection.retry_for_s, BUSY_FOR_S)
        while True:
            try:
                found = self._read(self.connection.client(), part)
                break
            except PenstockError as error:
                patience.wait(error)
        yield from found

    def _read(self, client: HttpClient, part: LogPart) -> list[Evidence]:
        """Everything of a part, or nothing: if the connection is lost it is read again."""
        with client.read_log(
            after=part.after, until=part.until, filters=self.filters, columns=NUMBERS
        ) as reading:
            rows = Rows(reading, LOG, self.stretch)
        first, last = position_of(part.after).offset + 1, position_of(part.until).offset
        return [
            *map(Evidence.of_run, rows.runs()),
            Evidence(READ, LOG, first=len(rows), first_offset=first, last_offset=last),
            *(
                Evidence(GAP, LOG, first_offset=gap.first, last_offset=gap.last, text=gap.reason)
                for gap in reading.statement.gaps
            ),
        ]


def check_log(log_id: str, there: str) -> None:
    """Refuse to compare a lake with a log that it is not made of.

    Raises:
        InvalidRequest: the server has another log.
    """
    if there != log_id:
        raise InvalidRequest(f"this lake is of the log {log_id}, and the server has {there}")


def plan_parts(
    connection: Connection, log_id: str, cursor: str, filters: tuple[str, ...], stretch: Stretch, parts: int
) -> list[LogPart]:
    """What the log still has of a stretch, cut into about so many parts.

    Args:
        cursor: of the lake. What the log has behind it is not archived yet.

    Raises:
        InvalidRequest: the server has another log.
    """
    earliest = connection.insist(lambda client: client.position("earliest", filters=filters))
    check_log(log_id, earliest.log_id)
    after = max(stretch.after, earliest.offset)
    near = position_of(cursor)
    until = min(stretch.until, near.offset)
    if after >= until:
        return []
    start, end = cursor_at(near, after), cursor_at(near, until)
    found = connection.insist(lambda client: client.ranges(parts, after=start, until=end, filters=filters))
    return [LogPart(each.after, each.until) for each in found.ranges]
