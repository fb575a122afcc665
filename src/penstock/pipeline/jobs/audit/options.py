"""What to audit, checked before Spark is started."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.settings import TopicLimits
from penstock.core.topics import check_filter
from penstock.errors import InvalidFilter, InvalidRequest
from penstock.pipeline.jobs.audit.bounds import Place, parse_place
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.options import read_options

CAPTURED = ("#", "$penstock/#")
"""What a server with a data directory keeps unless it is told otherwise."""

_ANY_LENGTH = TopicLimits(max_bytes=65535, max_levels=65535)


class AuditOptions(Struct, frozen=True, kw_only=True):
    """What to audit."""

    lake: str
    connection: Connection | None = None
    """A server whose log the lake is compared with, as far as it still has it."""
    start: Place | None = None
    end: Place | None = None
    captured: tuple[str, ...] = CAPTURED
    """Filters of the topics that the log keeps completely."""
    is_strict: bool = False
    """Losses that were declared when they happened are findings as well."""


def audit_options(
    lake: str,
    *,
    server: Mapping[str, str] | None = None,
    start: str | None = None,
    end: str | None = None,
    captured: Sequence[str] | None = None,
    is_strict: bool = False,
) -> AuditOptions:
    """What someone wrote, as options.

    Args:
        server: where it is and who asks, as options of `format("penstock")`.
        start: a cursor or a time; so is `end`.

    Raises:
        InvalidRequest: a place or a filter is none.
        InvalidOption: something is wrong with how the server is to be reached.
    """
    for each in captured or ():
        try:
            check_filter(each, _ANY_LENGTH)
        except InvalidFilter as error:
            raise InvalidRequest(f"{each!r} is no topic filter: {error}") from None
    return AuditOptions(
        lake=lake,
        connection=None if server is None else read_options(server, is_stream=False).connection,
        start=None if start is None else parse_place(start),
        end=None if end is None else parse_place(end),
        captured=tuple(captured) if captured else CAPTURED,
        is_strict=is_strict,
    )
