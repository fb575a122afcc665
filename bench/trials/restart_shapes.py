"""Restarts of a killed server by the shape of what waits: CPU, memory and longest turn.

    python -m bench.trials.restart_shapes [nothing | one | sessions | windows | fan | retained | topics ...]
        [--messages 100000] [--repeat 3] [--folder DIR]

A server is filled over MQTT and killed. Every measured start works on a copy of the same data directory, so
each finds the same log, sealed as far as it was at the kill. After a first start sessions reconnect: each has
to receive its messages once and in order. A folder that is given keeps the filled data directories for the
next run.
"""

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.errors import BenchError
from bench.load.meter import Meter, Reading
from bench.peers.broker import pinned_to
from bench.peers.target import LOOPBACK
from bench.trials.mqtt_clients import (
    PUBACK,
    PUBLISH,
    Client,
    connect,
    connect_as,
    find_body,
    publish,
    run,
)
from bench.trials.server import Server
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import Request, Subscribe, Version

PAYLOAD_BYTES = 100
NUMBER_BYTES = 8
INFLIGHT = 5
"""Unacknowledged deliveries of each session with a window."""
PUBREC, PUBREL, PUBCOMP = b"\x50\x02", 0x60, b"\x70\x02"
QUEUE_BYTES = 1 << 31
CHECKED = 100
"""Sessions that reconnect."""
AT_ONCE = 200
QUIET_S, POLL_S, PATIENCE_S = 2.0, 0.1, 180.0
"""The start is over when a server has used hardly any CPU for this long."""
QUIET_CPU_S = 0.05
SERVER_CPU, CLIENT_CPU = 0, -1
"""Indexes into the cores that this process may use."""

Message = tuple[str, bytes]


class Plan(Struct, frozen=True):
    """Sessions, what they subscribe to, and what is published for them."""

    filters: Sequence[tuple[str, str, int]] = ()
    """Client id, filter and QoS of each session."""
    first: Sequence[Message] = ()
    """Messages that each session receives and does not acknowledge."""
    messages: Sequence[Message] = ()
    expected: Callable[[str], Sequence[int]] = lambda client_id: ()
    """Numbers of the messages that a session has to receive, by client id."""
    is_retained: bool = False


def _payload(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big").ljust(PAYLOAD_BYTES, b".")


def _one(messages: int) -> Plan:
    """One session, one topic."""
    return _sessions(messages, 1)


def _sessions(messages: int, sessions: int = 1_000) -> Plan:
    """A topic for each session; the messages of all sessions alternate."""
    return Plan(
        [(f"bench-{number}", f"bench/restart/{number}", 1) for number in range(sessions)],
        messages=[(f"bench/restart/{number % sessions}", _payload(number)) for number in range(messages)],
        expected=lambda client_id: range(int(client_id[6:]), messages, sessions),
    )


def _windows(messages: int) -> Plan:
    """Ten messages for each session, whose window is full too: of QoS 1 and 2 in turn."""
    sessions = max(messages // 10, 1)
    count = sessions * INFLIGHT

    def name(number: int) -> str:
        return f"bench/restart/{number % sessions}"

    return Plan(
        [(f"bench-{number}", name(number), 1 + number % 2) for number in range(sessions)],
        [(name(number), _payload(number)) for number in range(count)],
        [(name(number), _payload(number)) for number in range(count, count + messages)],
        lambda client_id: range(int(client_id[6:]), count + messages, sessions),
    )


def _fan(messages: int) -> Plan:
    """The same messages for a hundred sessions."""
    sessions, topics = 100, 100
    return Plan(
        [(f"bench-{number}", "bench/restart/+", 1) for number in range(sessions)],
        messages=[
            (f"bench/restart/{number % topics}", _payload(number)) for number in range(messages // sessions)
        ],
        expected=lambda client_id: range(messages // sessions),
    )


def _retained(messages: int) -> Plan:
    """Retained values, one for each topic, and no session."""
    return Plan(
        messages=[(f"bench/restart/{number}", _payload(number)) for number in range(messages)],
        is_retained=True,
    )


def _topics(messages: int) -> Plan:
    """One session, a topic for each message."""
    return Plan(
        [("bench-0", "bench/restart/#", 1)],
        messages=[(f"bench/restart/{number}", _payload(number)) for number in range(messages)],
        expected=lambda client_id: range(messages),
    )


def _nothing(messages: int) -> Plan:
    """A new data directory: the cost of Python and its libraries."""
    return Plan()


SHAPES: dict[str, Callable[[int], Plan]] = {
    "nothing": _nothing,
    "one": _one,
    "sessions": _sessions,
    "windows": _windows,
    "fan": _fan,
    "retained": _retained,
    "topics": _topics,
}
"""Plans by name."""


class NumberedClient(Client):
    """Client that records the numbers of its messages; redelivered ones come first and once."""

    acknowledges = True

    def __init__(self, client_id: str, expected: int = 0) -> None:
        super().__init__(client_id, expected)
        self.numbers: list[int] = []

    def data_received(self, data: bytes) -> None:
        data, position = self._rest + data, 0
        replies: list[bytes] = []
        while (body := find_body(data, position)) is not None:
            start, stop = body
            kind = data[position] & 0xF0
            if kind == PUBLISH:
                id_at = start + 2 + int.from_bytes(data[start : start + 2], "big")
                self.numbers.append(int.from_bytes(data[id_at + 2 : id_at + 2 + NUMBER_BYTES], "big"))
                reply = bytes((PUBACK, 2)) if data[position] & 0x06 == 0x02 else PUBREC
                replies.append(reply + data[id_at : id_at + 2])
            elif kind == PUBREL:
                replies.append(PUBCOMP + data[start:stop])
            else:
                self._on_ack(data[position], data[start:stop])
            position = stop
        self._rest = data[position:]
        if replies and self.acknowledges and self._transport is not None:
            self._transport.write(b"".join(replies))
        self.got = len(self.numbers)
        self._check_all()


class WithholdingClient(NumberedClient):
    """Client that acknowledges nothing."""

    acknowledges = False


class Start(Struct, frozen=True):
    """Cost of one start."""

    listening_s: float
    """CPU time until the first CONNACK."""
    wall_s: float
    settled_s: float
    """CPU time after that until the server is quiet, that of its sealing process included."""
    rss_mb: float
    """At the first CONNACK."""
    peak_mb: float
    """Most until the server is quiet."""


class Bench:
    """Data directories of one run, and the servers on them."""

    def __init__(self, folder: Path, messages: int) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self._folder = folder
        self._messages = messages
        self._server_cpu, self._client_cpu = cores[SERVER_CPU], cores[CLIENT_CPU]

    def _server(self, folder: Path, *, has_http: bool = False) -> Server:
        return Server(
            folder,
            self._server_cpu,
            has_http=has_http,
            sessions__owed_messages=self._messages,
            sessions__owed_bytes=QUEUE_BYTES,
            retained__max_messages=self._messages,
            topic__max_topics=max(self._messages * 2, 1_000_000),
        )

    def fill(self, shape: str) -> Path:
        """Fill a data directory over MQTT and kill the server; an earlier one of the same size is used."""
        folder = self._folder / f"{shape}-{self._messages}"
        if (folder / "filled").exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        plan = SHAPES[shape](self._messages)
        server = self._server(folder)
        server.start()
        try:
            with pinned_to(self._client_cpu):
                run(_fill(server.port, plan))
            time.sleep(QUIET_S)  # its last commits
        finally:
            server.kill()
        (folder / "filled").touch()
        return folder

    def check(self, shape: str) -> float:
        """Start once, let sessions reconnect, and return the longest turn of the loop in milliseconds.

        Raises:
            BenchError: a session missed a message, or received one twice or out of order.
        """
        with self._copied(shape, has_http=True) as server:
            _start(server)
            stall_ms = _stall_ms(server)
            with pinned_to(self._client_cpu):
                run(_check(server.port, SHAPES[shape](self._messages)))
            return stall_ms

    def start(self, shape: str) -> Start:
        """Start once, with MQTT only, and measure."""
        with self._copied(shape) as server:
            return _start(server)

    @contextmanager
    def _copied(self, shape: str, *, has_http: bool = False) -> Iterator[Server]:
        """Server on a copy of the filled data directory; compiled modules stay for the next one."""
        filled, folder = self.fill(shape), self._folder / "copy"
        shutil.rmtree(folder / "data", ignore_errors=True)
        shutil.copytree(filled / "data", folder / "data")
        server = self._server(folder, has_http=has_http)
        try:
            yield server
        finally:
            server.kill()
            shutil.rmtree(folder / "data", ignore_errors=True)


def _start(server: Server) -> Start:
    wall_s = server.start()
    if not server.is_alone:
        raise BenchError("another process took the port of the server; repeat the run")
    meter = Meter(server.port)
    first = last = meter.read()
    peak, quiet_since, deadline = first.rss_bytes, time.monotonic(), time.monotonic() + PATIENCE_S
    mark: Reading = first
    while time.monotonic() < min(quiet_since + QUIET_S, deadline):
        time.sleep(POLL_S)
        last = meter.read()
        peak = max(peak, last.rss_bytes)
        if last.cpu_s - mark.cpu_s > QUIET_CPU_S:
            quiet_since, mark = time.monotonic(), last
    return Start(first.cpu_s, wall_s, last.cpu_s - first.cpu_s, first.rss_bytes / 1e6, peak / 1e6)


def _stall_ms(server: Server) -> float:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{server.http_port}/metrics") as response:
        return float(json.load(response)["loop_lag_ms"]["stall"])


async def _fill(port: int, plan: Plan) -> None:
    await _each(plan.filters, lambda each: _subscribe(port, *each))
    if plan.first:
        await publish(port, plan.first)
        await _each(plan.filters, lambda each: _receive(port, each[0]))
    await publish(port, plan.messages, is_retained=plan.is_retained)


async def _subscribe(port: int, client_id: str, filter: str, qos: int) -> None:
    client = await connect(port, client_id)
    await client.request(encode_packet(Subscribe(1, (Request(filter, qos=qos),)), Version.V311))
    await client.disconnect()


async def _receive(port: int, client_id: str) -> None:
    """Receive what fills the window, and leave without an acknowledgement."""
    client = await connect_as(port, WithholdingClient(client_id, INFLIGHT))
    await client.has_all
    await client.disconnect()


async def _check(port: int, plan: Plan) -> None:
    checked = list(islice((client_id for client_id, _, _ in plan.filters), CHECKED))

    async def check(client_id: str) -> None:
        expected = list(plan.expected(client_id))
        client = await connect_as(port, NumberedClient(client_id, len(expected)))
        await client.has_all
        await client.disconnect()
        if client.numbers != expected:
            raise BenchError(f"{client_id} did not receive its messages once and in order")

    await _each(checked, check)


async def _each(items: Sequence[object], work: Callable[..., object]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def do(item: object) -> None:
        async with slots:
            await work(item)  # type: ignore[misc]

    await asyncio.gather(*map(do, items))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the shapes that are asked for, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.trials.restart_shapes")
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-restart-") as scratch:
        bench = Bench(asked.folder or Path(scratch), asked.messages)
        print(
            "shape        CPU s to listening  after, s  RSS MB  peak MB  longest turn ms  (medians)",
            flush=True,
        )
        for shape in asked.shapes or SHAPES:
            stall_ms = bench.check(shape)
            starts = [bench.start(shape) for _ in range(asked.repeat)]
            cells = [
                median([getattr(start, field) for start in starts])
                for field in ("listening_s", "settled_s", "rss_mb", "peak_mb")
            ]
            listening, after, rss, peak = cells
            print(
                f"{shape:<12} {listening:>18.2f} {after:>9.2f} {rss:>7.0f} {peak:>8.0f} {stall_ms:>16.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
