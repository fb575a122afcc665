"""Subscription that begins in the past: `penstock sub` with `--last`, `--since` or `--after`.

MQTT has no past, so that these flags read events over HTTP.
"""

import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from penstock.cli.connect import HttpServer, MqttServer, run_http
from penstock.cli.flags import Group
from penstock.cli.log.read import parse_time
from penstock.cli.output import Output, json_value, printable
from penstock.common.topics import is_wildcard
from penstock.errors import InvalidCursor, PenstockError

if TYPE_CHECKING:
    from penstock.client import HttpClient
    from penstock.client.http.events import Event

T = TypeVar("T")
MOST_LAST = 10_000
SILENCE_S = 60.0
"""Longest silence of a stream; the server sends a sign of life every 15 seconds."""
QUEUED = 1_000
"""Most events between the thread that reads and the one that writes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PastFlags(Group, frozen=True, kw_only=True):
    """Flags of a subscription that begins in the past."""

    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            min=1,
            max=MOST_LAST,
            metavar="COUNT",
            help="Begin with this many of the newest messages.",
        ),
    ] = None
    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            parser=parse_time,
            metavar="TIME",
            help="Begin at this time, or this long ago: 10m. Needs a server with a data directory.",
        ),
    ] = None
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="CURSOR", help="Begin after this cursor, or after this sequence of one topic."
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """True if one of them is given."""
        return (self.last, self.since, self.after) != (None, None, None)

    def check(self) -> None:
        """Refuse several of them."""
        if [self.last, self.since, self.after].count(None) < 2:
            raise typer.BadParameter("give one of --last, --since and --after")


class Writing(msgspec.Struct, frozen=True):
    """Output of a subscription, and when it ends."""

    output: Output
    verbose: bool
    count: int | None
    timeout_s: float | None


class EventMessage(msgspec.Struct):
    """Message of an event."""

    topic: str
    sequence: int
    cursor: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    encoding: str | None = None


def follow(
    server: MqttServer,
    filters: Sequence[str],
    past: PastFlags,
    writing: Writing,
    add: Callable[[int, float], None],
) -> int:
    """Write messages of the past and then new ones; returns how many.

    Args:
        add: called with the size of each message and the time.
    """
    shared = {name: getattr(server, name) for name in HttpServer.__struct_fields__}
    http = HttpServer(**{**shared, "connect_timeout": max(server.connect_timeout, SILENCE_S)})
    written = 0

    def work(client: "HttpClient") -> None:
        nonlocal written
        after = _start(client, filters, past)
        with client.events(filters, after=after, last=past.last) as events:
            for message in _messages(_until(events, writing.timeout_s)):
                payload = _write(message, writing)
                add(len(payload), monotonic())
                written += 1
                if written == writing.count:
                    return

    run_http(http, work, interrupted=0)
    return written


def _start(client: "HttpClient", filters: Sequence[str], past: PastFlags) -> str | None:
    """The cursor to begin after."""
    if past.since is not None:
        return client.position(_EPOCH + timedelta(microseconds=past.since)).cursor
    if past.after is None or not (past.after.isascii() and past.after.isdigit()):
        return past.after
    if len(filters) != 1 or is_wildcard(filters[0]):
        raise typer.BadParameter("--after with a sequence needs one topic without wildcards")
    sequence = int(past.after)
    if sequence == 0:
        raise typer.BadParameter("--after: sequences begin with 1; --last begins with the newest messages")
    found = client.messages(filters[0], after_sequence=sequence - 1, limit=1).messages
    if found and found[0].sequence == sequence:
        return found[0].cursor
    raise InvalidCursor(f"{filters[0]} has no message {sequence} any more, or not yet; try --last or --since")


def _until(events: "Iterator[Event] | Any", timeout_s: float | None) -> "Iterator[Event]":
    """Events until a time; a thread reads them, because a read cannot be given up."""
    waiting: queue.Queue[Event | PenstockError | None] = queue.Queue(QUEUED)

    def read() -> None:
        try:
            for event in events:
                waiting.put(event)
            waiting.put(None)
        except PenstockError as error:
            waiting.put(error)
        except Exception as error:  # else the other thread would wait without end
            waiting.put(PenstockError(f"not a stream of events: {error}"))

    threading.Thread(target=read, daemon=True).start()
    deadline = None if timeout_s is None else monotonic() + timeout_s
    while deadline is None or monotonic() < deadline:
        try:
            event = waiting.get(timeout=None if deadline is None else max(deadline - monotonic(), 0.0))
        except queue.Empty:
            return
        if isinstance(event, PenstockError):
            raise event
        if event is None:
            return
        yield event


def _messages(events: "Iterator[Event]") -> Iterator[EventMessage]:
    """Messages among events; what is missing goes to standard error."""
    for event in events:
        if not event.name:
            yield _decode(event, EventMessage)
        elif event.name == "gap":
            statement = _decode(event, dict[str, Any])
            for missing in statement.get("missing") or [{}]:
                _report_missing(missing)
        elif event.name == "end":
            content = _decode(event, dict[str, Any])
            raise PenstockError(f"the server ended it: {content.get('detail') or content.get('code')}")


def _decode(event: "Event", kind: type[T]) -> T:
    try:
        return msgspec.json.decode(event.data, type=kind)
    except msgspec.MsgspecError as error:
        raise PenstockError(f"not a stream of events: {error}") from None


def _report_missing(missing: dict[str, Any]) -> None:
    topic, reason = missing.get("topic", "messages"), missing.get("reason", "not known")
    first, last = missing.get("first"), missing.get("last")
    which = (
        f" sequences {first} to {last}" if first is not None else f" up to sequence {last}" if last else ""
    )
    typer.echo(f"missing: {topic}{which}: {reason}", err=True)


def _write(message: EventMessage, writing: Writing) -> bytes:
    from penstock.wire.json_values import payload_of  # noqa: PLC0415 - only for messages

    payload = payload_of(message.data, message.encoding)
    out = sys.stdout.buffer
    if writing.output is Output.JSON:
        out.write(_as_json(message, payload))
    else:
        clean: Callable[[bytes], bytes] = printable if sys.stdout.isatty() else bytes
        topic = clean(message.topic.encode()) + b" " if writing.verbose else b""
        out.write(topic + clean(payload))
    out.write(b"\n")
    out.flush()
    return payload


def _as_json(message: EventMessage, payload: bytes) -> bytes:
    """A message with the keys that `penstock sub -o json` has; an event does not have all values."""
    content = {
        "timestamp": None,
        "topic": message.topic,
        "payload": json_value(payload),
        "content_type": None,
        "qos": None,
        "retain": None,
        "sequence": message.sequence,
        "cursor": message.cursor,
        "properties": {},
        "received_at": datetime.now(UTC),
    }
    return msgspec.json.encode(content)
