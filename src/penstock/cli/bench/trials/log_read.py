"""How fast the log is read as Arrow streams: what is sealed leaves as it is stored, the rest is converted."""

import time
from collections.abc import Iterator

from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.trials.made import make_log
from penstock.cli.bench.trials.site import Site
from penstock.storage.disk.mark import Mark
from penstock.storage.disk.opening import open_store
from penstock.storage.disk.reading import Reader
from penstock.storage.disk.survey import survey

SEALED = 1_000_000
ROWS = 200_000
CHUNK_BYTES = 4 << 20
"""What a reader asks for at once."""


def read_log(site: Site, repeat: int) -> Iterator[Measurement]:
    """Read a log from end to end, in one thread."""
    sealed, rows = site.count(SEALED), site.count(ROWS)
    path = site.folder / "data"
    site.say(f"  log_read: making a log of {sealed + rows:,} messages")
    make_log(path, sealed, rows)
    store, _ = open_store(path)
    try:
        reader = Reader(store, survey(store, Mark.read(path)).index)
        reader.arrow(0, 1, CHUNK_BYTES)  # the libraries are loaded
        for _ in range(repeat):
            yield Measurement(
                size=f"{sealed:,} sealed messages and {rows:,} others",
                rows_per_s=_rows_per_s(reader, 0, sealed),
                tail_rows_per_s=_rows_per_s(reader, sealed, sealed + rows),
            )
    finally:
        store.close()


def _rows_per_s(reader: Reader, after: int, until: int) -> float:
    """Rows for each second of CPU that this process spends on them, in all its threads."""
    began, wanted, rows = time.process_time(), until - after, 0
    while after < until:
        span = reader.arrow(after, until, CHUNK_BYTES)
        rows += span.rows
        after = span.until
    if rows != wanted:
        raise BenchError(f"{rows} rows were read of {wanted}")
    return rows / (time.process_time() - began)
