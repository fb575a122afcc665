"""Data directories as a server writes them, for the commands to look into."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

from penstock.runs import Run
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.log import DiskLog
from penstock.storage.disk.pieces.sealing import Sealer
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import survey
from penstock.storage.disk.rocksdb.layout import DATABASE_FOLDER
from penstock.storage.disk.rocksdb.store import Changes, Store
from tests.support.clock import ManualClock
from tests.support.samples import make_run
from tests.support.turns import end_turn
from tests.support.waiting import until

NOON = 1_700_000_000_000_000
NOON_TEXT = "2023-11-14T22:13:20"
SECOND = 1_000_000


def messages(topics: str, **options: object) -> list[Run]:
    """One message for each letter, on the topic of that name."""
    return [make_run(topic, f"{topic}-{at}".encode(), qos=1, **options) for at, topic in enumerate(topics)]  # type: ignore[arg-type]


class OpenLog:
    """A server's log that is in use; the message with offset n was published n seconds after noon."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock(NOON)
        self.step_us = SECOND
        self.log = DiskLog(path, asyncio.get_running_loop(), self.clock, node_id="node")
        self.head = self.log.last_offset
        self.sequences: dict[str, int] = {}

    async def commit(self, runs: Iterable[Run], *, skipped: int = 0) -> None:
        """One turn of the loop, and its commit; some offsets before belong to topics that are not kept."""
        self.head += skipped
        for run in runs:
            last = self.sequences.get(run.topic) or self.log.last_sequence(run.topic)
            run.sequence, run.offset = last + 1, self.head + 1
            run.published_at = NOON + run.offset * self.step_us
            self.sequences[run.topic] = last + run.count
            self.head += run.count
            self.log.sequencer.turn.runs.append(run)
        end_turn(self.log, self.head)
        await until(
            lambda: self.log.is_idle and self.log.last_offset >= self.head,
            "the log did not reach the head",
            every_s=0.001,
        )


def write(path: Path, *turns: Sequence[Run], skipped: int = 0) -> None:
    """One life of a server: each turn becomes a frame."""

    async def live() -> None:
        opened = OpenLog(path)
        for turn in turns:
            await opened.commit(turn, skipped=skipped)
        opened.log.close()

    asyncio.run(live())


def seal(path: Path) -> None:
    """Make one batch of all frames."""
    store, _ = open_store(path)
    sealer = Sealer(store, survey(store, DurableMark.read(path)).index, "node", on_error=lambda error: None)
    sealer.seal_now()
    sealer.stop()
    store.close()


Entries = Mapping[tuple[str, bytes], bytes]
"""Values by family and key."""


def write_entries(store: Store, entries: Entries, *, without: Sequence[tuple[str, bytes]] = ()) -> None:
    """Write entries behind the server's back, and delete others."""
    changes = Changes()
    for (family, key), value in entries.items():
        changes.put(family, key, value)
    for family, key in without:
        changes.delete(family, key)
    store.write(changes, sync=True)


def change(path: Path, *, put: Entries | None = None, delete: Sequence[tuple[str, bytes]] = ()) -> None:
    """The same in a directory without a server."""
    store, _ = open_store(path)
    write_entries(store, put or {}, without=delete)
    store.close()


def settle(path: Path) -> None:
    """Move everything into tables, as happens by itself when enough was written."""
    store, _ = open_store(path)
    store.close()


def largest_table(path: Path) -> Path:
    """The table with the sealed batch."""
    return max((path / DATABASE_FOLDER).glob("*.sst"), key=lambda file: file.stat().st_size)


def scribble(path: Path) -> Path:
    """Damage the sealed batch where it is stored, and tell in which table."""
    table = largest_table(path)
    content = bytearray(table.read_bytes())
    content[200:300] = Random(1).randbytes(100)
    table.write_bytes(content)
    return table


def flip_write_ahead_log(path: Path) -> None:
    """Turn a bit over in the middle of what is not in tables yet."""
    [file] = [file for file in (path / DATABASE_FOLDER).glob("*.log") if file.stat().st_size]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def digest(path: Path) -> str:
    """Everything that is in a directory: names, contents, times of change."""
    entries = sorted(path.rglob("*"))
    facts = [
        (str(entry), entry.stat().st_mtime_ns, entry.read_bytes() if entry.is_file() else b"")
        for entry in entries
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()
