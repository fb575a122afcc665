"""Log on disk: reading it as Arrow streams, starting a server with a long log, reading its tail.

Sealed batches are read as they are stored; the rest is converted.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from bench.errors import BenchError
from bench.measurement import Measurement
from bench.trials.log_maker import make_log
from bench.trials.server import Server, Site
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.read.reader import Reader
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import survey

READ_SEALED = 1_000_000
READ_UNSEALED = 200_000
CHUNK_BYTES = 4 << 20
"""Bytes per read."""
START_MESSAGES = 10_000_000
START_UNSEALED = 5_000
"""Unsealed messages among them, at the end."""
TAIL_MESSAGES = 1_000
TAIL_BYTES = 1 << 20


def read_log(site: Site, repeat: int) -> Iterator[Measurement]:
    """Read a log from end to end, in one thread."""
    sealed, rows = site.count(READ_SEALED), site.count(READ_UNSEALED)
    path = site.folder / "data"
    site.say(f"  log_read: making a log of {sealed + rows:,} messages")
    make_log(path, sealed, rows)
    store, _ = open_store(path)
    try:
        reader = Reader(store, survey(store, DurableMark.read(path)).index)
        reader.arrow(0, 1, CHUNK_BYTES)  # loads the libraries
        for _ in range(repeat):
            yield Measurement(
                size=f"{sealed:,} sealed messages and {rows:,} others",
                rows_per_s=_rows_per_s(reader, 0, sealed),
                tail_rows_per_s=_rows_per_s(reader, sealed, sealed + rows),
            )
    finally:
        store.close()


def _rows_per_s(reader: Reader, after: int, until: int) -> float:
    """Rows per second of CPU time of this process, all threads included."""
    began, wanted, rows = time.process_time(), until - after, 0
    while after < until:
        span = reader.arrow(after, until, CHUNK_BYTES)
        rows += span.rows
        after = span.until
    if rows != wanted:
        raise BenchError(f"{rows} rows were read of {wanted}")
    return rows / (time.process_time() - began)


def start_with_log(site: Site, repeat: int) -> Iterator[Measurement]:
    """Start with the same log repeatedly; it is in the page cache then."""
    messages = max(site.count(START_MESSAGES), START_UNSEALED)
    site.say(f"  log_start: making a log of {messages:,} messages")
    make_log(site.folder / "data", messages - START_UNSEALED, START_UNSEALED)
    server = Server(site.folder, site.server_cpu)
    for _ in range(repeat):
        found = Measurement(size=f"{messages:,} messages")
        try:
            found.start_s = server.start()
            found.start_cpu_s = server.read().cpu_s
        finally:
            server.stop()
        found.tail_ms = _read_tail(site.folder / "data", messages)
        yield found


def _read_tail(path: Path, last: int) -> float:
    """Milliseconds of the first read of the newest messages, after the log is open."""
    store, _ = open_store(path)
    try:
        reader = Reader(store, survey(store, DurableMark.read(path)).index)
        began = time.perf_counter()
        span = reader.runs(last - TAIL_MESSAGES, last, TAIL_BYTES, None)
        took_s = time.perf_counter() - began
        if sum(run.count for run in span.runs) != TAIL_MESSAGES:
            raise BenchError(f"{len(span.runs)} runs were read of {TAIL_MESSAGES} messages")
        return took_s * 1000
    finally:
        store.close()
