"""`penstock pub`: publish from the shell."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connect import Connect, MqttServer, Timings, complete_topic, run_mqtt
from penstock.cli.flags import duration_option, spread
from penstock.cli.output import INTERRUPTED, Output, OutputOption, progress_count
from penstock.wire.mqtt.reasons import ReasonCode

if TYPE_CHECKING:
    from penstock.client import MqttClient, PacketProperties

INFLIGHT = 20
"""Most unacknowledged messages at QoS 1 and 2."""
STDIN = Path("-")
DEFAULT_QOS = 1
"""Least QoS with an acknowledgement, which reports a refusal."""


@spread
def pub(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Topic to publish to.", autocompletion=complete_topic)
    ],
    message: Annotated[
        str | None,
        typer.Argument(
            metavar="MESSAGE", help="Payload; an empty one with --retain deletes the retained message."
        ),
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Read the payload from a file; - is standard input.",
            allow_dash=True,
        ),
    ] = None,
    stdin_lines: Annotated[
        bool, typer.Option("--stdin-lines", help="Publish each line of standard input as a message.")
    ] = False,
    qos: Annotated[
        int | None,
        typer.Option(
            "--qos",
            "-q",
            min=0,
            max=2,
            metavar="QOS",
            help="0, 1 or 2; default: 1, so that a refusal is reported. 0 does not wait for the server.",
        ),
    ] = None,
    retain: Annotated[
        bool, typer.Option("--retain", "-r", help="Publish it as the topic's retained message.")
    ] = False,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="COUNT", help="Publish it this many times.")
    ] = 1,
    expiry: Annotated[
        int | None, duration_option("--expiry", "Lifetime of the message.", most=0xFFFF_FFFF, is_whole=True)
    ] = None,
    content_type: Annotated[
        str | None, typer.Option("--content-type", metavar="TYPE", help="Content type of the payload.")
    ] = None,
    server: MqttServer,
    output: OutputOption = Output.TEXT,
    timings: Timings = False,
) -> None:
    """Publish a message and wait until the server has it.

    Ends with 1 if the server refuses the message. At QoS 0, and over MQTT 3.1.1, the server cannot say so.
    """
    if [message is not None, file is not None, stdin_lines].count(True) != 1:
        raise typer.BadParameter("give one of MESSAGE, --file and --stdin-lines")
    if not server.is_5 and (expiry, content_type) != (None, None):
        raise typer.BadParameter("--expiry and --content-type need --mqtt-version 5")
    payload = message.encode() if message is not None else _read(file) if file is not None else None

    async def work(connect: Connect) -> None:
        from penstock.client import PacketProperties  # noqa: PLC0415

        properties = PacketProperties(message_expiry=expiry, content_type=content_type)
        payloads = _lines(count) if payload is None else _copies(payload, count)
        total = None if stdin_lines else count
        async with connect() as client:
            receipt = Receipt(topic, _default_qos(client) if qos is None else qos, retain)
            with progress_count("publishing", lambda: receipt.messages, total):
                await _publish_all(client, payloads, properties, receipt)
        receipt.show(output, timings, tells_unheard=qos is not None)

    run_mqtt(server, work, interrupted=0 if stdin_lines else INTERRUPTED)


class Receipt:
    """Result of a `pub`: counts, reason codes and latencies."""

    def __init__(self, topic: str, qos: int, retain: bool) -> None:
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.messages = 0
        self.bytes = 0
        self.reasons: dict[int, int] = {}
        self.latencies: list[float] = []
        self.seconds = 0.0

    def add(self, size: int, reason: int, latency: float) -> None:
        """Count one acknowledged message."""
        self.messages += 1
        self.bytes += size
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if self.qos:
            self.latencies.append(latency)

    def show(self, output: Output, with_timings: bool, tells_unheard: bool) -> None:
        """Print it: all of it as JSON, only warnings and timings as text.

        Args:
            tells_unheard: warn about messages without subscribers; only for an explicit QoS.
        """
        if output is Output.JSON:
            print(json.dumps(self._as_dict(with_timings), ensure_ascii=False))
            return
        unheard = self.reasons.get(ReasonCode.NO_MATCHING_SUBSCRIBERS, 0)
        if unheard and tells_unheard:
            typer.echo(f"{unheard:,} of {self.messages:,} messages: no subscribers.", err=True)
        if with_timings:
            typer.echo(self._rate(), err=True)

    def _as_dict(self, with_timings: bool) -> dict[str, Any]:
        content: dict[str, Any] = {
            "topic": self.topic,
            "qos": self.qos,
            "retain": self.retain,
            "messages": self.messages,
            "bytes": self.bytes,
            "reasons": {ReasonCode(reason).name.lower(): times for reason, times in self.reasons.items()},
        }
        if with_timings:
            content["seconds"] = round(self.seconds, 6)
            content["acknowledged_ms"] = self._latency_ms()
        return content

    def _rate(self) -> str:
        rate = self.messages / self.seconds if self.seconds else 0.0
        text = f"{self.messages:,} messages in {self.seconds:.3f} s, {rate:,.0f} per second"
        latency = self._latency_ms()
        if latency is None:
            return text
        parts = ", ".join(f"{name} {value:.2f} ms" for name, value in latency.items())
        return f"{text}; acknowledged after: {parts}"

    def _latency_ms(self) -> dict[str, float] | None:
        """None at QoS 0, which has no acknowledgement."""
        if not self.latencies:
            return None
        ordered = sorted(self.latencies)
        places = {"median": 0.5, "p99": 0.99, "longest": 1.0}
        return {
            name: round(ordered[int(part * (len(ordered) - 1))] * 1e3, 3) for name, part in places.items()
        }


def _default_qos(client: "MqttClient") -> int:
    """QoS 1, or less if the server accepts no more."""
    limit = client.connack.properties.maximum_qos
    return DEFAULT_QOS if limit is None else min(DEFAULT_QOS, limit)


async def _publish_all(
    client: "MqttClient", payloads: AsyncIterator[bytes], properties: "PacketProperties", receipt: Receipt
) -> None:
    """Publish in order; at QoS 1 and 2 several messages are in flight."""
    window = asyncio.Semaphore(INFLIGHT)

    async def publish(payload: bytes) -> None:
        started = perf_counter()
        reason = await client.publish(
            receipt.topic, payload, qos=receipt.qos, retain=receipt.retain, properties=properties
        )
        receipt.add(len(payload), reason, perf_counter() - started)
        window.release()

    began = perf_counter()
    try:
        async with asyncio.TaskGroup() as tasks:
            async for payload in payloads:
                await window.acquire()
                if receipt.qos:
                    tasks.create_task(publish(payload))
                else:
                    await publish(payload)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    receipt.seconds = perf_counter() - began


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--file") from None


async def _copies(payload: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield payload


async def _lines(count: int) -> AsyncIterator[bytes]:
    """The lines of standard input, each `count` times, as they come.

    A daemon thread reads them, because Ctrl-C cannot interrupt a read.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = threading.Semaphore(INFLIGHT)

    def put(line: bytes | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(lines.put_nowait, line)

    def read() -> None:
        # A second file object: the interpreter cannot close one that is blocked in a read.
        with open(sys.stdin.fileno(), "rb", closefd=False) as stdin, suppress(RuntimeError):
            for line in stdin:
                put(line.rstrip(b"\r\n"))
            put(None)  # RuntimeError: the loop has ended before the input

    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        room.release()
        for _ in range(count):
            yield line
