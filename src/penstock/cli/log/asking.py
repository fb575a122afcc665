"""What of the log someone asks for: the flags, and which offsets that means."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct
from msgspec.structs import asdict

from penstock.cli.flags import Group
from penstock.core.cursor import Cursor
from penstock.core.ports import Gap, Wanted
from penstock.core.settings import TopicLimits
from penstock.core.topics import check_filter, check_topic, matches, split_share
from penstock.errors import InvalidCursor, InvalidFilter, InvalidTopic
from penstock.model import Reason

if TYPE_CHECKING:
    from penstock.cli.log.snapshot import Snapshot

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SETTLED_ELSEWHERE = TopicLimits(max_bytes=1 << 16, max_levels=1 << 16)
"""The server's own limits are not known here."""


def parse_time(text: str | int) -> int:
    """Microseconds since 1970 of a date and time, or of so long ago."""
    if isinstance(text, int):
        return text
    try:
        if ago := _AGO.fullmatch(text):
            when = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        else:
            when = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # so long ago that there were no dates
        example = "2026-01-31T12:00:00Z, or 90s, 30m, 12h, 7d ago"
        raise typer.BadParameter(f"{text!r} is no time; write {example}") from None
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


class RequestFlags(Group, frozen=True, kw_only=True):
    """The flags that say what is asked for."""

    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Begin after this cursor.")
    ] = None
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=1, help="Begin with this offset.")
    ] = None
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None
    first: Annotated[int | None, typer.Option("--first", min=1, help="With --topic: its first sequence.")] = (
        None
    )
    last: Annotated[int | None, typer.Option("--last", min=1, help="With --topic: its last sequence.")] = None
    since: Annotated[
        int | None,
        typer.Option(
            "--since", parser=parse_time, metavar="TIME", help="Published then or later; 10m is so long ago."
        ),
    ] = None
    until: Annotated[
        int | None, typer.Option("--until", parser=parse_time, metavar="TIME", help="Published before then.")
    ] = None
    filters: Annotated[
        list[str] | None, typer.Option("--filter", help="Only topics that match; may be repeated.")
    ] = None
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many messages.")] = None

    def request(self) -> "Request":
        """What is asked for.

        Raises:
            typer.BadParameter: it does not go together, or is no topic, filter or cursor.
        """
        asked = {name: value for name, value in asdict(self).items() if value is not None}
        request = Request(**{**asked, "filters": tuple(self.filters or ())})
        request.check()
        return request


class Request(Struct, frozen=True, kw_only=True):
    """What is asked for; without anything, all there is."""

    after: str | None = None
    from_offset: int | None = None
    topic: str | None = None
    first: int | None = None
    last: int | None = None
    since: int | None = None
    until: int | None = None
    filters: tuple[str, ...] = ()
    limit: int | None = None

    def check(self) -> None:
        """Refuse what does not go together, or is no topic, filter or cursor."""
        self._check_together()
        self._check_spans()
        try:
            if self.topic is not None:
                check_topic(self.topic, _SETTLED_ELSEWHERE)
            if self.after is not None:
                Cursor.decode(self.after)
            for filter in self.filters:
                _check_filter(filter)
        except (InvalidTopic, InvalidFilter, InvalidCursor) as error:
            raise typer.BadParameter(str(error)) from None

    def _check_together(self) -> None:
        sequences = [self.first, self.last]
        places = [self.after, self.from_offset, self.since, self.until]
        if [self.after, self.from_offset].count(None) == 0:
            raise typer.BadParameter("give one of --after and --from-offset")
        if self.topic is not None and self.filters:
            raise typer.BadParameter("give one of --topic and --filter")
        if sequences.count(None) < 2 and self.topic is None:
            raise typer.BadParameter("--first and --last are sequences of a --topic")
        if sequences.count(None) < 2 and places.count(None) < 4:
            raise typer.BadParameter("--first and --last do not go with offsets, cursors and times")

    def _check_spans(self) -> None:
        if self.first is not None and self.last is not None and self.first > self.last:
            raise typer.BadParameter("--first is after --last")
        if self.since is not None and self.until is not None and self.since > self.until:
            raise typer.BadParameter("--since is after --until")

    @property
    def wanted(self) -> Wanted | None:
        """Says of a topic whether it is asked for; None if all are."""
        if self.topic is not None:
            return self.topic.__eq__
        return (lambda topic: any(matches(each, topic) for each in self.filters)) if self.filters else None


def _check_filter(filter: str) -> None:
    check_filter(filter, _SETTLED_ELSEWHERE)
    if split_share(filter)[0] is not None:
        raise InvalidFilter(f"{filter}: a log is not shared; leave out the group")


class Stretch(Struct, frozen=True):
    """The offsets that a request is about, and what is known to be missing before them."""

    after: int
    until: int
    gaps: tuple[Gap, ...] = ()


def find_stretch(snapshot: "Snapshot", request: Request) -> Stretch:
    """Where in a log to look for what is asked for.

    Raises:
        InvalidCursor: it is of another log, or names a place that the log does not have.
    """
    after, gaps = _find_start(snapshot, request)
    newest = snapshot.last_offset
    if after > newest:
        raise InvalidCursor(f"the log ends with offset {newest}")
    until = newest if request.until is None else _last_before(snapshot, request.until)
    return Stretch(after, max(after, min(until, newest)), gaps)


def _find_start(snapshot: "Snapshot", request: Request) -> tuple[int, tuple[Gap, ...]]:
    """The offset after which it begins, and what is missing before that."""
    if request.after is not None:
        return _place_of(snapshot, Cursor.decode(request.after))
    if request.from_offset is not None:
        return request.from_offset - 1, ()
    if request.since is not None:
        return _first_since(snapshot, request.since), ()
    if request.topic is not None and request.first is not None:
        found = snapshot.reader.find_sequence(request.topic, request.first)
        if found is not None or not snapshot.damage:  # or else it may have been where something is damaged
            return min(snapshot.last_offset, snapshot.last_offset if found is None else found), ()
    return snapshot.first_offset - 1, ()


def _place_of(snapshot: "Snapshot", cursor: Cursor) -> tuple[int, tuple[Gap, ...]]:
    """The offset of a cursor; one beyond what its epoch has committed is cut back."""
    position = cursor.position_in(snapshot.log_id)
    if position is None:
        raise InvalidCursor("this cursor is of another log")
    end = snapshot.end_of(position.epoch) if position.epoch < snapshot.epoch else None
    offset = position.offset if end is None else min(position.offset, end)
    if position.epoch > snapshot.epoch or offset > snapshot.last_offset:
        raise InvalidCursor("this cursor is ahead of the log")
    lost = Gap(offset + 1, position.offset, Reason.LOST_UNCOMMITTED)
    return offset, (lost,) if offset < position.offset else ()


def _first_since(snapshot: "Snapshot", since: int) -> int:
    """The offset after which everything lies that is not older than a time."""
    pieces = snapshot.pieces()
    if not pieces or pieces[0].began_at > since:
        return 0  # what was there before has left, and may be among what is asked for
    for piece, following in pairwise(pieces):
        if following.began_at >= since:
            return piece.first - 1
    return pieces[-1].first - 1


def _last_before(snapshot: "Snapshot", until: int) -> int:
    """The last offset that can be from before a time."""
    earlier = (piece.last for piece in reversed(snapshot.pieces()) if piece.began_at < until)
    return next(earlier, 0)
