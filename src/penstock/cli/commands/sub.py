"""`penstock sub`: subscribe from the shell."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.commands.past import PastFlags, Writing, follow
from penstock.cli.connect import Connect, MqttServer, Qos, Timings, complete_topic, run_mqtt
from penstock.cli.flags import duration_option, spread
from penstock.cli.output import Output, OutputOption, json_value, printable

if TYPE_CHECKING:
    from penstock.client import Messages, MqttClient, Publish

SEND_RETAINED, NO_RETAINED = 0, 2
NEVER_EXPIRES = 0xFFFF_FFFF
MARKED = "penstock-meta"
"""User property of a subscription that requests sequence, time and cursor with each message."""
SEQUENCE_MARK, TIME_MARK, CURSOR_MARK = "ps-seq", "ps-ts", "ps-cursor"
MARKS = (SEQUENCE_MARK, TIME_MARK, CURSOR_MARK)


@spread
def sub(
    filters: Annotated[
        list[str],
        typer.Argument(metavar="FILTER", help="Topic filter to subscribe to.", autocompletion=complete_topic),
    ],
    *,
    qos: Qos = 0,
    session_expiry: Annotated[
        int | None,
        duration_option(
            "--session-expiry",
            "With --client-id: resume its session, and keep it this long.",
            least=1,
            most=NEVER_EXPIRES,
            is_whole=True,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, metavar="COUNT", help="End after this many messages."),
    ] = None,
    timeout: Annotated[
        float | None,
        duration_option("--timeout", "End after this time."),
    ] = None,
    retained: Annotated[
        bool, typer.Option("--retained/--no-retained", help="Also show the retained messages.")
    ] = True,
    past: PastFlags,
    server: MqttServer,
    output: OutputOption = Output.TEXT,
    timings: Timings = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the topic before each message.")
    ] = False,
) -> None:
    """Subscribe and write every message, until Ctrl-C.

    With --last, --since or --after it begins in the past. These read over HTTP: --port is the HTTP port then.
    """
    past.check()
    if session_expiry is not None and not server.client_id:
        raise typer.BadParameter("--session-expiry needs --client-id, which names the session")
    if session_expiry is not None and not server.is_5:
        raise typer.BadParameter("--session-expiry needs MQTT 5")
    received = ReceiveRate()
    if past.is_given:
        if qos or session_expiry is not None or server.websocket or not server.is_5:
            raise typer.BadParameter("--last, --since and --after read over HTTP, without QoS and sessions")
        follow(server, filters, past, Writing(output, verbose, count, timeout), received.add)
        if timings:
            typer.echo(received.total(), err=True)
        _check_count(received, count, timeout)
        return

    async def work(connect: Connect) -> None:
        async with connect() as client, received.reporting() if timings else nullcontext():
            await _subscribe(client, filters, qos, retained, wants_marks=output is Output.JSON)
            as_bytes = formatter(output, verbose)
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await _write_all(client.messages, as_bytes, received, count, retained)

    run_mqtt(server, work, session_expiry_s=session_expiry)
    _check_count(received, count, timeout)


def _check_count(received: "ReceiveRate", count: int | None, timeout: float | None) -> None:
    """Exit with 1 if fewer messages came than were waited for."""
    if count is not None and timeout is not None and received.messages < count:
        typer.echo(f"error: {received.messages} of {count} messages came within {timeout:g} s", err=True)
        raise typer.Exit(1)


class ReceiveRate:
    """Counts and rates of the received messages."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self._first_at = 0.0
        self._last_at = 0.0

    def add(self, size: int, now: float) -> None:
        """Count one message."""
        if not self.messages:
            self._first_at = now
        self._last_at = now
        self.messages += 1
        self.bytes += size

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """Report the rate each second and the total at the end, on standard error."""
        reporter = asyncio.create_task(self._report_each_second())
        try:
            yield
        finally:
            reporter.cancel()
            typer.echo(self.total(), err=True)

    async def _report_each_second(self) -> None:
        reported = 0
        while True:
            await asyncio.sleep(1)
            if self.messages > reported:
                typer.echo(f"{self.messages - reported:,} per second", err=True)
            reported = self.messages

    def total(self) -> str:
        """The total, and the rate between the first message and the last."""
        seconds = self._last_at - self._first_at
        text = f"{self.messages:,} messages, {self.bytes:,} bytes in {seconds:.3f} s"
        return f"{text}, {(self.messages - 1) / seconds:,.0f} per second" if seconds else text


async def _subscribe(
    client: "MqttClient", filters: list[str], qos: int, retained: bool, wants_marks: bool
) -> None:
    from penstock.client import PacketProperties, RequestRefused, Version  # noqa: PLC0415
    from penstock.client.errors import describe_reason  # noqa: PLC0415

    # MQTT 3.1.1 cannot exclude retained messages, which are skipped on arrival. Nor can it request marks.
    is_5 = client.version is Version.V5
    reasons = await client.subscribe(
        *filters,
        qos=qos,
        retain_handling=NO_RETAINED if is_5 and not retained else SEND_RETAINED,
        properties=PacketProperties(user=((MARKED, ""),) if is_5 and wants_marks else ()),
    )
    for filter, reason in zip(filters, reasons, strict=True):
        if reason >= 0x80:
            raise RequestRefused(f"the server refused {filter!r}: {describe_reason(reason)}", reason)


async def _write_all(
    messages: "Messages",
    as_bytes: "Callable[[Publish], bytes]",
    received: ReceiveRate,
    count: int | None,
    retained: bool,
) -> None:
    """Write messages up to a count."""
    out = sys.stdout.buffer
    async for message in messages:
        if retained or not message.retain:
            received.add(len(message.payload), monotonic())
            out.write(as_bytes(message) + b"\n")
        is_enough = received.messages == count
        if is_enough or not len(messages):  # a burst is written at once
            out.flush()
        if is_enough:
            return


def formatter(output: Output, verbose: bool) -> "Callable[[Publish], bytes]":
    """The format of a message."""
    if output is Output.JSON:
        return as_json
    clean: Callable[[bytes], bytes] = printable if sys.stdout.isatty() else bytes
    if verbose:
        return lambda message: clean(message.topic.encode()) + b" " + clean(message.payload)
    return lambda message: clean(message.payload)


def as_json(message: "Publish") -> bytes:
    """A message as one JSON object, with all its properties."""
    now = datetime.now(UTC)
    properties = {
        name: json_value(value) for name, value in msgspec.structs.asdict(message.properties).items()
    }
    marks = {name: value for name, value in message.properties.user if name in MARKS}
    properties["user"] = [each for each in properties["user"] if each[0] not in MARKS]
    content = {
        "timestamp": _time_of(marks.get(TIME_MARK)) or now,
        "topic": message.topic,
        "payload": json_value(message.payload),
        "content_type": message.properties.content_type,
        "qos": message.qos,
        "retain": message.retain,
        "sequence": int(marks[SEQUENCE_MARK]) if SEQUENCE_MARK in marks else None,
        "cursor": marks.get(CURSOR_MARK),
        "properties": {name: value for name, value in properties.items() if value not in (None, (), [])},
        "received_at": now,
    }
    return msgspec.json.encode(content)


def _time_of(mark: str | None) -> datetime | None:
    """The time of publication, if the server sent it."""
    return None if mark is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(mark))
