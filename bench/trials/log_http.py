"""Log over HTTP: speed of reading it, and its cost for deliveries at the same time.

Readers discard the data, so that the server is measured.
"""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from bench.errors import BenchError
from bench.load.build import build_program
from bench.load.generator import LoadGenerator
from bench.measurement import Measurement
from bench.peers.broker import pinned_to
from bench.peers.target import LOOPBACK, Target
from bench.scenarios import SCENARIOS
from bench.trials.log_maker import make_log
from bench.trials.server import Server, Site

MESSAGES = 2_000_000
READS = 3
"""Reads per measurement, because CPU time has a resolution of 10 ms."""
LOAD = SCENARIOS["mixed"]
LOAD_S = 3.0
LEAST_LOAD_S = 0.3
RECEIVE_BYTES = 1 << 20
ROW_BYTES = 57
"""Approximate size of a message in a response."""
TIMEOUT_S = 60.0
SERVED = re.compile(rb'"served":(\d+)')
TAIL_BYTES = 4_096
"""End of a response that is kept, because the statement is there."""


def read_by_http(site: Site, repeat: int) -> Iterator[Measurement]:
    """Read a whole log repeatedly."""
    messages = site.count(MESSAGES)
    site.say(f"  log_http: making a log of {messages:,} messages")
    with _serving(site, messages) as server, pinned_to(site.client_cpu):
        fetch(server.http_port, messages)  # loads the application, fills the page cache
        for _ in range(repeat):
            before = server.read()
            for _ in range(READS):
                fetch(server.http_port, messages)
            after = server.read()
            rows = messages * READS
            yield Measurement(
                size=f"{messages:,} messages, {READS} times",
                rows_per_s=rows / max(after.cpu_s - before.cpu_s, 0.01),
                read_rows_per_s=rows / (after.at_s - before.at_s),
            )


def read_under_load(site: Site, repeat: int) -> Iterator[Measurement]:
    """Deliver messages with and without a reader, in turn."""
    messages = site.count(MESSAGES)
    load_s = min(max(LOAD_S * site.scale, LEAST_LOAD_S), LOAD_S)
    generator = LoadGenerator(
        build_program(site.say), cpu=site.client_cpu, duration_s=load_s, warm_s=load_s / 3
    )
    site.say(f"  log_http_load: making a log of {messages:,} messages")
    with _serving(site, messages) as server:
        target = Target("penstock", "mqtt", LOOPBACK, server.port)
        fetch(server.http_port, messages)
        generator.measure(LOAD, target)  # warm-up
        for _ in range(repeat):
            alone = generator.measure(LOAD, target)
            began = time.monotonic()
            with _reading(site, server.http_port, messages) as reads:
                found = generator.measure(LOAD, target)
            took_s = time.monotonic() - began
            for one in (alone, found):
                if one.failure is not None or not one.delivered_per_s:
                    raise BenchError(one.failure or "nothing was delivered")
            found.size = f"{messages:,} messages"
            found.load_share = (found.delivered_per_s or 0.0) / (alone.delivered_per_s or 1.0)
            found.read_rows_per_s = reads.count * messages / took_s
            yield found


@contextmanager
def _serving(site: Site, messages: int) -> Iterator[Server]:
    """Server with such a log that captures nothing else."""
    make_log(site.folder / "data", messages, 0)
    server = Server(site.folder, site.server_cpu, has_http=True, log__capture="plant/#", log__retention_s=0)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def fetch(port: int, messages: int, should_stop: Event | None = None) -> float:
    """Read the whole log, or until stopped; returns the approximate share that was read."""
    received, tail = 0, b""
    with socket.create_connection((LOOPBACK, port), timeout=TIMEOUT_S) as connection:
        connection.sendall(b"GET /api/v1/log HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = connection.recv(TAIL_BYTES)
        if not head.startswith(b"HTTP/1.1 200"):
            raise BenchError(f"the log cannot be read: {head[:200]!r}")
        while data := connection.recv(RECEIVE_BYTES):
            received += len(data)
            if should_stop is not None and should_stop.is_set():
                return received / (messages * ROW_BYTES)
            tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (tail + data)[-TAIL_BYTES:]
    served = SERVED.search(tail)
    if served is None or int(served[1]) != messages:
        raise BenchError("the log was not read to its end")
    return 1.0


class _Reads:
    """Counts how often a log was read."""

    def __init__(self, port: int, cpu: int, messages: int) -> None:
        self.count = 0.0
        self.error: BenchError | None = None
        self._port = port
        self._cpu = cpu
        self._messages = messages
        self.should_stop = Event()

    def run(self) -> None:
        os.sched_setaffinity(0, {self._cpu})  # this thread only
        try:
            while not self.should_stop.is_set():
                self.count += fetch(self._port, self._messages, self.should_stop)
        except BenchError as error:
            self.error = error


@contextmanager
def _reading(site: Site, port: int, messages: int) -> Iterator[_Reads]:
    """Read the log repeatedly in a thread, as fast as the server sends it."""
    reads = _Reads(port, site.client_cpu, messages)
    thread = Thread(target=reads.run, daemon=True)
    thread.start()
    try:
        yield reads
    finally:
        reads.should_stop.set()
        thread.join(TIMEOUT_S)
    if reads.error is not None:
        raise reads.error
