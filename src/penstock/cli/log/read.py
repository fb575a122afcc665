"""`penstock log read` and `penstock log tail`: messages of a data directory, and what is missing."""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sys import maxsize
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec.structs import asdict

from penstock.cli.connect import HttpServer
from penstock.cli.flags import Group, spread
from penstock.cli.log.directory import INCOMPLETE, Directory, DirectoryOrServer, open_snapshot
from penstock.cli.log.remote import read_remote
from penstock.cli.output import Output, OutputOption, json_value, one_line
from penstock.common.cursor import Cursor
from penstock.common.durations import parse_duration
from penstock.common.statement import Missing, Statement
from penstock.common.text import counted, moment_text, offsets_text
from penstock.common.topics import TopicLimits, check_filter, check_topic, split_share
from penstock.errors import InvalidCursor, InvalidFilter, InvalidTopic

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.storage.disk.scan import Request, Scan
    from penstock.storage.disk.snapshot import Snapshot

POLL_S = 0.2
"""Interval at which `tail --follow` checks for new commits."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDEST = TopicLimits(max_bytes=1 << 16, max_levels=1 << 16)
"""The limits of the server that wrote the log are not known here."""

Lines = Callable[["pa.RecordBatch"], Iterator[bytes]]

_encode = msgspec.json.Encoder().encode


def parse_time(text: str | int) -> int:
    """Microseconds since 1970 of a date and time, or of an age such as `10m`."""
    if isinstance(text, int):
        return text
    try:
        ago_s = parse_duration(text)
        if ago_s is not None:
            when = datetime.now(UTC) - timedelta(seconds=ago_s)
        else:
            when = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # an age before the first date
        example = "2026-01-31T12:00:00Z, or 90s, 30m, 12h, 7d ago"
        raise typer.BadParameter(f"{text!r} is not a valid time; write {example}") from None
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


class RequestFlags(Group, frozen=True, kw_only=True):
    """Flags that select messages."""

    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Begin after this cursor.")
    ] = None
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=1, metavar="OFFSET", help="Begin with this offset.")
    ] = None
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")] = None
    first: Annotated[
        int | None,
        typer.Option("--first", min=1, metavar="SEQUENCE", help="With --topic: its first sequence."),
    ] = None
    last: Annotated[
        int | None, typer.Option("--last", min=1, metavar="SEQUENCE", help="With --topic: its last sequence.")
    ] = None
    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            parser=parse_time,
            metavar="TIME",
            help="Published at this time or later; 10m is ten minutes ago.",
        ),
    ] = None
    until: Annotated[
        int | None,
        typer.Option("--until", parser=parse_time, metavar="TIME", help="Published before this time."),
    ] = None
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="FILTER", help="Only topics that match; may be repeated."),
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="COUNT", help="End after this many messages.")
    ] = None

    def check(self) -> None:
        """Refuse flags that contradict each other, and invalid topics, filters and cursors.

        Raises:
            typer.BadParameter: one of the flags is wrong.
        """
        self._check_combination()
        self._check_ranges()
        try:
            if self.topic is not None:
                check_topic(self.topic, _WIDEST)
            if self.after is not None:
                Cursor.decode(self.after)
            for filter in self.filters or ():
                _check_filter(filter)
        except (InvalidTopic, InvalidFilter, InvalidCursor) as error:
            raise typer.BadParameter(str(error)) from None

    def request(self) -> "Request":
        """The selection for a scan."""
        from penstock.storage.disk.scan import Request  # noqa: PLC0415 - Arrow takes a while

        given = {name: value for name, value in asdict(self).items() if value is not None}
        return Request(**{**given, "filters": tuple(self.filters or ())})

    def _check_combination(self) -> None:
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

    def _check_ranges(self) -> None:
        if self.first is not None and self.last is not None and self.first > self.last:
            raise typer.BadParameter("--first is after --last")
        if self.since is not None and self.until is not None and self.since > self.until:
            raise typer.BadParameter("--since is after --until")


def _check_filter(filter: str) -> None:
    check_filter(filter, _WIDEST)
    if split_share(filter)[0] is not None:
        raise InvalidFilter(f"{filter}: a log is not shared; leave out the group")


def check_place(directory: Path | None, server: HttpServer) -> None:
    """Refuse a directory together with flags of a server."""
    if directory is not None and server != HttpServer():
        raise typer.BadParameter("give a DIRECTORY, or --address and the other flags of a server")


@spread
def read(
    directory: DirectoryOrServer = None,
    *,
    asked: RequestFlags,
    server: HttpServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write messages of a data directory or a running server, oldest first, and at the end what is missing.

    Ends with 3 when part of the requested data is missing.
    """
    asked.check()
    check_place(directory, server)
    if directory is None:
        read_remote(server, asked, output)
        return
    with open_snapshot(directory) as snapshot:
        from penstock.storage.disk.scan import Scan  # noqa: PLC0415 - Arrow takes a while

        scan = Scan(snapshot, asked.request())
        _write(scan, lines_for(output))
        finish(scan.statement(), output)


def tail(
    directory: Directory,
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="FILTER", help="Only topics that match.", show_default=False)
    ] = None,
    *,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, metavar="COUNT", help="Messages to begin with.")
    ] = 10,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Continue with new messages, until Ctrl-C or SIGTERM."),
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write the last messages, and with --follow new ones as they are committed.

    Ends with 3 when messages among them are missing.
    """
    asked = RequestFlags(filters=filters)
    asked.check()
    with open_snapshot(directory) as snapshot:
        from penstock.storage.disk.scan import Request, Scan  # noqa: PLC0415 - Arrow takes a while

        request = asked.request()
        after = _find_last(snapshot, request, count)
        scan, lines = (
            Scan(snapshot, Request(filters=request.filters, from_offset=after + 1)),
            lines_for(output),
        )
        if follow:
            with Interruption().handling_signals() as interruption:
                _follow(snapshot, scan, lines, interruption)
        else:
            _write(scan, lines)
        finish(scan.statement(), output)


class Interruption:
    """End of a `tail` by Ctrl-C, SIGTERM or SIGHUP: between two batches, so that the position is known.

    A second signal ends it at once.
    """

    def __init__(self) -> None:
        self._is_requested = self._is_waiting = False

    @contextmanager
    def handling_signals(self) -> Iterator["Interruption"]:
        """Run the block until a signal ends it."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # set by nohup
                signal.signal(number, self._on_signal)
        try:
            with suppress(KeyboardInterrupt):
                yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """End here if a signal came."""
        if self._is_requested:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Sleep; a signal ends it at once."""
        self._is_waiting = True
        self.check()
        time.sleep(seconds)
        self._is_waiting = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_waiting or self._is_requested:
            raise KeyboardInterrupt
        self._is_requested = True


def _find_last(snapshot: "Snapshot", request: "Request", count: int) -> int:
    """The offset after which the last `count` messages lie."""
    if not count:
        return snapshot.last_offset
    for piece in reversed(snapshot.pieces()):
        until = min(piece.last, snapshot.last_offset)
        runs = snapshot.reader.runs(piece.first - 1, until, maxsize, request.wanted).runs
        offsets = [run.offset + index for run in runs for index in range(run.count)]
        if len(offsets) >= count:
            return offsets[-count] - 1
        count -= len(offsets)
    return snapshot.first_offset - 1


def _follow(snapshot: "Snapshot", scan: "Scan", lines: Lines, interruption: Interruption) -> None:
    _write(scan, lines, interruption.check)
    while True:
        if snapshot.refresh():
            scan.follow()
            _write(scan, lines, interruption.check)
        interruption.wait(POLL_S)


def _write(scan: "Scan", lines: Lines, check: Callable[[], None] = lambda: None) -> None:
    write_batches(scan.batches(lambda _: check()), lines)


def write_batches(batches: "Iterable[pa.RecordBatch]", lines: Lines) -> None:
    """Write messages to standard output."""
    for batch in batches:
        sys.stdout.buffer.writelines(lines(batch))
    sys.stdout.flush()


def lines_for(output: Output) -> Lines:
    """The format of messages: one line each."""
    return messages_as_json if output is Output.JSON else messages_as_text


def messages_as_json(batch: "pa.RecordBatch") -> Iterator[bytes]:
    """Messages as JSON objects with a key for each column."""
    for row in batch.to_pylist():
        yield _encode({name: json_value(value) for name, value in row.items()}) + b"\n"


def messages_as_text(batch: "pa.RecordBatch") -> Iterator[bytes]:
    """Messages as offset, time, topic, sequence and payload, with line ends escaped."""
    columns = batch.select(["offset", "published_at", "topic", "sequence", "payload"]).to_pylist()
    for row in columns:
        when = moment_text(row["published_at"])
        topic, payload = one_line(row["topic"].encode()), one_line(row["payload"])
        yield f"{row['offset']} {when} {topic} {row['sequence']} {payload}\n".encode()


def finish(statement: Statement, output: Output) -> None:
    """Write the statement to standard error, and exit with 3 if something is missing."""
    sys.stdout.flush()
    text = statement_as_json(statement) if output is Output.JSON else "\n".join(statement_as_text(statement))
    typer.echo(text, err=True)
    if not statement.is_complete:
        raise typer.Exit(INCOMPLETE)


def statement_as_text(statement: Statement) -> Iterator[str]:
    """A line about what was served, and one for each thing that is missing."""
    end = "the log ends here" if statement.is_at_head else "the log continues"
    yield f"served {counted(statement.served, 'message')}; {end}: --after {statement.next.encode()}"
    for gap in statement.gaps:
        yield f"missing: {offsets_text(gap.first, gap.last)}: {gap.reason}"
    for missing in statement.missing:
        yield f"missing: {missing.topic} {_sequences_text(missing)}: {missing.reason}"


def statement_as_json(statement: Statement) -> str:
    """The statement as one JSON object."""
    content: dict[str, Any] = {
        "served": statement.served,
        "after": None if statement.after is None else statement.after.encode(),
        "next": statement.next.encode(),
        "is_at_head": statement.is_at_head,
        "gaps": statement.gaps,
        "missing": statement.missing,
    }
    return msgspec.json.encode(content).decode()


def _sequences_text(missing: Missing) -> str:
    if missing.first is None:
        return f"sequences up to {missing.last}"
    if missing.first == missing.last:
        return f"sequence {missing.last}"
    return f"sequences {missing.first} to {missing.last}"
