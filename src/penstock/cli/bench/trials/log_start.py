"""How long a server with a long log takes to start, and how soon the end of such a log can be read."""

import time
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.trials.made import make_log
from penstock.cli.bench.trials.serving import Server
from penstock.cli.bench.trials.site import Site
from penstock.storage.disk.mark import Mark
from penstock.storage.disk.opening import open_store
from penstock.storage.disk.reading import Reader
from penstock.storage.disk.survey import survey

MESSAGES = 10_000_000
ROWS = 5_000
"""Of these, at the end, are not sealed."""
TAIL_MESSAGES = 1_000
TAIL_BYTES = 1 << 20


def start_with_log(site: Site, repeat: int) -> Iterator[Measurement]:
    """Start with the same log again and again; it is in the system's cache then."""
    messages = max(site.count(MESSAGES), ROWS)
    site.say(f"  log_start: making a log of {messages:,} messages")
    make_log(site.folder / "data", messages - ROWS, ROWS)
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
    """Milliseconds that the first read of the newest messages takes, once the log is open."""
    store, _ = open_store(path)
    try:
        reader = Reader(store, survey(store, Mark.read(path)).index)
        began = time.perf_counter()
        span = reader.runs(last - TAIL_MESSAGES, last, TAIL_BYTES, None)
        took_s = time.perf_counter() - began
        if sum(run.count for run in span.runs) != TAIL_MESSAGES:
            raise BenchError(f"{len(span.runs)} runs were read of {TAIL_MESSAGES} messages")
        return took_s * 1000
    finally:
        store.close()
