"""Log on disk: the log port over group commit, index and reader, plus background work.

Taking a turn is a memory operation; everything slow runs in other threads.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from penstock.common.statement import Gap
from penstock.core.durability.records import TABLES
from penstock.core.ports.archive import ArrowSpan, Portions
from penstock.core.ports.log import Listing, Lost, Settled, Span, Ticket, Wanted
from penstock.core.ports.turn import Sequencer, Turn
from penstock.core.replay.message_ids import name_of_node
from penstock.core.runtime.clock import Clock
from penstock.core.settings import LogSettings
from penstock.errors import StorageUnavailable
from penstock.model import Reason
from penstock.runs import Run
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.commit.group_commit import GroupCommit
from penstock.storage.disk.holds import HOLDS, HoldRecord, Holds
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.pieces.sealing import Sealer
from penstock.storage.disk.read.loader import ExpiryClock
from penstock.storage.disk.read.ranges import Bounds
from penstock.storage.disk.read.reader import Reader, topics_after
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.recovery.survey import EPOCHS, EpochRecord, Survey, end_of_epoch, survey
from penstock.storage.disk.retention import Retention
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import DATABASE_FOLDER, FAMILIES, STATE, sync_folder
from penstock.storage.disk.rocksdb.store import Store
from penstock.storage.disk.state import DiskStateStore
from penstock.storage.open import Durability

T = TypeVar("T")
log = structlog.get_logger("penstock.log")

FETCH_AGAIN_S = 1.0
READERS = 4
"""Reads at the same time; each is bounded, so waits are short."""
ARCHIVISTS = 2
"""Bulk reads at the same time, in a pool of their own: offline queues never wait for them."""


class DiskLog:
    """Log of one node in a data directory."""

    is_durable = True

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        node_id: str = "",
        durability: Durability = "fsync",
        settings: LogSettings | None = None,
    ) -> None:
        """Open a data directory, damaged or not.

        Raises:
            InvalidConfig: it is in use, of a newer format, or not a data directory.
        """
        settings = settings or LogSettings()
        self._loop = loop
        self._clock = clock
        self._store, opening = open_store(path)
        _repair_state(self._store)
        self._mark = DurableMark.open(path)
        found = survey(self._store, self._mark.value)
        self.log_id = self._store.log_id
        node_id = node_id or name_of_node(self.log_id)
        self.epoch = found.epoch + 1
        self.damage: tuple[Gap, ...] = found.damage
        self._index = found.index
        self._sequences = found.sequences  # of unsealed topics; not changed any more
        self.has_unreadable_names = False
        for note in opening.notes:
            log.warning("the log was damaged", what=note)
        if self._mark.value is None and not opening.is_new:
            log.error("the mark is missing or damaged", consequence="a lost end of the log would not show")
        for gap in found.damage:
            log.error("a part of the log is lost", first=gap.first, last=gap.last, reason=str(gap.reason))
        if found.is_state_behind:
            log.error("changes of sessions are lost", commit=found.last_commit)
        self.sequencer = Sequencer(found.last_offset)
        self._group_commit = GroupCommit(
            self._store,
            self._index,
            self._mark,
            self.sequencer,
            loop,
            clock,
            epoch=self.epoch,
            number=found.last_commit,
            durability=durability,
            limit_bytes=settings.queued_bytes,
        )
        tables = TABLES | {EPOCHS: EpochRecord, HOLDS: HoldRecord}
        self.state = DiskStateStore(self._store, self._group_commit, tables)
        self._expiry = ExpiryClock(clock, found.last_offset + 1)
        self._noted = found.last_offset  # clock offsets are recorded up to here
        self._epochs = self._begin_epoch(found)
        self._reader = Reader(self._store, self._index, node_id)
        self._reader.on_damage = self._on_damage
        self._readers = ThreadPoolExecutor(READERS, "reader")
        self._archivists = ThreadPoolExecutor(ARCHIVISTS, "archive")
        self._upkeep = ThreadPoolExecutor(1, "upkeep")
        self.holds = Holds(self.state, self.sequencer, clock, self._index, settings)
        self._sealer = Sealer(self._store, self._index, node_id, on_error=self._on_seal_error)
        self._retention = Retention(self._store, self._index, settings, self.holds, quiet=self._sealer.quiet)
        self._trimming: Future[None] | None = None
        self._checking: Future[None] | None = None  # of the files
        self._is_ended = False
        self._is_readable = True
        self._is_closed = False
        self._sealer.start()
        self._group_commit.on_committed = self._sealer.poke

    def _begin_epoch(self, found: Survey) -> dict[int, int]:
        """Store the first offset of this epoch before any publish; return those of all epochs."""
        self.sequencer.turn.put(EPOCHS, str(self.epoch), EpochRecord(found.last_offset + 1))
        self._group_commit.commit_now(self.sequencer.end_turn(is_urgent=True))
        if self.failure is not None:  # the mark can be written on a full disk, and no epoch may repeat
            with suppress(OSError):
                self._mark.write(found.last_offset, found.last_commit)
        with suppress(OSError):  # a failing disk is reported by its commits
            self._mark.sync()
            sync_folder(self._store.path)
        epochs = {}
        for number, record in self.state.scan(EPOCHS):
            assert isinstance(record, EpochRecord)
            epochs[int(number)] = record.first
        return epochs

    # Log port

    @property
    def first_offset(self) -> int:
        return self._index.first_offset

    @property
    def last_offset(self) -> int:
        return self._group_commit.last_offset

    @property
    def failure(self) -> Exception | None:
        return self._group_commit.failure

    @property
    def has_ended(self) -> bool:
        return self._group_commit.has_ended

    @property
    def is_behind(self) -> bool:
        return self._group_commit.is_behind

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        self._group_commit.when_caught_up(callback)

    @property
    def ticket(self) -> Ticket:
        return self._group_commit.open.number

    def commit(self, turn: Turn) -> None:
        self._expiry.note(self._noted + 1)
        self._noted = turn.head
        self._group_commit.commit(turn)

    def is_committed(self, ticket: Ticket) -> bool:
        return self._group_commit.is_committed(ticket)

    def when_committed(self, ticket: Ticket, callback: Settled) -> None:
        self._group_commit.when_committed(ticket, callback)

    def uncommitted(self, after: int) -> list[Run]:
        return [run for run in self._group_commit.uncommitted() if run.last_offset > after]

    async def read(self, after: int, limit_bytes: int, wanted: Wanted | None = None) -> Span:
        until = self.last_offset
        span = await self._loop.run_in_executor(
            self._readers, self._reader.runs, after, until, limit_bytes, wanted
        )
        self._expiry.set_expiry(span.runs)
        return span

    def fetch(self, offsets: Sequence[int], callback: Callable[[dict[int, Run]], None]) -> None:
        if self._is_closed:
            return
        fresh = self._group_commit.find([offset for offset in offsets if offset > self.last_offset])
        stored = [offset for offset in offsets if offset not in fresh]

        def on_done(done: "Future[dict[int, Run]]") -> None:
            if done.cancelled():
                return  # the log is being closed
            if (error := done.exception()) is None:
                self._loop.call_soon_threadsafe(self._on_fetched, done.result(), fresh, callback)
            else:
                self._loop.call_soon_threadsafe(self._fetch_later, error, offsets, callback)

        self._readers.submit(self._reader.fetch, stored).add_done_callback(on_done)

    def _on_fetched(
        self, stored: dict[int, Run], fresh: dict[int, Run], callback: Callable[[dict[int, Run]], None]
    ) -> None:
        self._is_readable = True
        self._expiry.set_expiry(stored.values())  # uncommitted ones have their expiry already
        callback(stored | fresh)

    def _fetch_later(
        self, error: BaseException, offsets: Sequence[int], callback: Callable[[dict[int, Run]], None]
    ) -> None:
        """Retry a failed read: the messages may still be there."""
        if self._is_readable:  # log once for all waiting reads
            log.warning("messages cannot be read now", reason=str(error))
        self._is_readable = False
        self._loop.call_later(FETCH_AGAIN_S, self.fetch, offsets, callback)

    def reason_of(self, offset: int) -> Reason:
        if offset < self.first_offset:
            return Reason.RETENTION
        if offset > self.last_offset:
            return Reason.NEVER_STORED
        piece = next(iter(self._index.after(offset - 1, limit=1)), None)
        is_hole = piece is not None and any(first <= offset <= last for first, last in piece.holes)
        # It belongs to a piece and is not a hole, so it must be unreadable.
        return Reason.NEVER_STORED if is_hole else Reason.DAMAGED

    def scan(self, after: int, wanted: Wanted) -> Iterator[Listing | Lost]:
        gaps = [gap for gap in self.damage if gap.last > after]
        before: dict[str, tuple[int, int]] = {}  # last offset and sequence of each topic
        for found in self._reader.scan(after, self.last_offset, wanted):
            if not isinstance(found, Listing):
                yield found
                continue
            runs = found.runs() if gaps or found.may_expire else ()
            for run in runs if gaps else ():
                yield from _lost_before(run, before.get(run.topic), gaps)
                before[run.topic] = run.last_offset, run.last_sequence
            if found.may_expire:
                self._expiry.set_expiry(runs)
                yield Listing.of_runs(runs)
            else:
                yield found

    def load(self, offsets: Sequence[int]) -> dict[int, Run]:
        found = self._reader.fetch(offsets)
        self._expiry.set_expiry(found.values())
        return found

    def last_sequence(self, topic: str) -> int:
        with suppress(StorageUnavailable):
            if not self._store.is_reopening:  # which would block the loop
                return max(self._sequences.get(topic, 0), self._reader.last_sequence(topic))
        return self.last_offset  # upper bound for every topic: no sequence repeats

    def last_sequences(self, topics: Sequence[str]) -> dict[str, int]:
        try:
            sealed = self._reader.last_sequences(topics)
        except (DamagedData, StorageUnavailable):
            return {topic: self.last_sequence(topic) for topic in topics}
        unsealed = self._sequences
        return {topic: max(unsealed.get(topic, 0), sealed.get(topic, 0)) for topic in topics}

    def epochs(self) -> list[int]:
        return sorted({*self._epochs, self.epoch})

    def end_of(self, epoch: int) -> int | None:
        if epoch == self.epoch:
            return self.last_offset
        return end_of_epoch(self._epochs, epoch)

    async def topics_after(self, name: str, limit: int) -> list[tuple[str, int]]:
        return await self._loop.run_in_executor(self._readers, self._topics_after, name, limit)

    def _topics_after(self, name: str, limit: int) -> list[tuple[str, int]]:
        sealed, is_whole = topics_after(self._store, name, limit)
        self.has_unreadable_names = self.has_unreadable_names or not is_whole
        found = dict(sealed)
        last = sealed[-1][0] if len(sealed) == limit else None  # more sealed topics may follow
        for topic, sequence in self._sequences.items():
            if topic > name and (last is None or topic <= last):
                found[topic] = max(sequence, found.get(topic, 0))
        return sorted(found.items())[:limit]

    async def find_sequence(self, topic: str, sequence: int) -> int | None:
        return await self._loop.run_in_executor(self._readers, self._reader.find_sequence, topic, sequence)

    def offset_at(self, wall_us: int) -> int:
        return self._index.at_time(wall_us)

    # Archive port: bulk reads

    async def arrow(
        self,
        after: int,
        until: int,
        limit_bytes: int,
        wanted: Wanted,
        columns: Sequence[str] | None = None,
        limit_rows: int | None = None,
    ) -> ArrowSpan:
        until = min(until, self.last_offset)
        return await self._archived(
            self._reader.arrow, after, until, limit_bytes, wanted, columns, limit_rows
        )

    async def arrow_end(self, columns: Sequence[str] | None, metadata: Mapping[str, str]) -> bytes:
        def encode() -> bytes:
            from penstock.storage.disk.pieces.arrow_batches import encode_end  # noqa: PLC0415 - slow import

            return encode_end(columns, metadata)

        return await self._archived(encode)

    async def find_time(self, wall_us: int) -> int:
        return await self._archived(self._reader.find_time, wall_us, self.last_offset)

    async def portions(
        self,
        after: int,
        until: int,
        parts: int,
        wanted: Wanted,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> Portions:
        until = max(min(until, self.last_offset), after)  # uncommitted messages are not missing
        bounds = Bounds(after, until, limit_rows, limit_bytes)
        return await self._archived(self._reader.portions, bounds, parts, wanted)

    async def _archived(self, call: Callable[..., T], *arguments: object) -> T:
        if self._is_closed:
            raise StorageUnavailable("the log is closed")
        return await self._loop.run_in_executor(self._archivists, partial(call, *arguments))

    # Upkeep

    @property
    def stored_bytes(self) -> int:
        return self._index.bytes

    @property
    def queued_bytes(self) -> int:
        return self._group_commit.queued_bytes

    def trim(self, queued_from: int | None) -> None:
        if self._trimming is None or self._trimming.done():
            self._trimming = self._upkeep.submit(self._trim, self._clock.wall_us(), queued_from)

    def _trim(self, wall_us: int, queued_from: int | None) -> None:
        try:
            trimmed = self._retention.trim(wall_us, queued_from)
        except Exception as error:  # called again in a few seconds
            log.warning("retention failed, will retry", reason=str(error))
            return
        if trimmed is not None and trimmed.messages:
            log.info(
                "retention removed messages", **{key: str(value) for key, value in trimmed.facts().items()}
            )

    def configure(self, settings: LogSettings) -> None:
        """Apply changed limits of commits, retention and holds. Nothing is left to do in the background."""
        self._group_commit.limit_bytes = settings.queued_bytes
        self._retention.settings = settings
        self.holds.configure(settings)

    def _check_files(self) -> None:
        """End the commits if another program has deleted files: acknowledged messages would be lost."""
        try:
            missing = self._store.find_missing()
        except (OSError, StorageUnavailable):
            return  # checked again in a second; a failing disk is reported by its commits
        if not missing or self._is_ended:
            return
        self._is_ended = True
        names = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
        words = f"files of the data directory were deleted: {names}; restart after a look at it"
        log.error("files of the data directory were deleted", files=names, path=str(self._store.path))
        self._loop.call_soon_threadsafe(self._group_commit.end, StorageUnavailable(words))
        if missing != [DATABASE_FOLDER]:
            for family in FAMILIES:  # what is in memory need not be in the deleted files
                self._store.flush(family)

    def reap(self) -> bool:
        """Remove lapsed holds, and look for deleted files in the background."""
        if not self._is_ended and (self._checking is None or self._checking.done()):
            self._checking = self._upkeep.submit(self._check_files)
        lapsed = self.holds.drop_lapsed()
        for hold in lapsed:
            log.warning("a hold has lapsed", hold=hold.name, owner=hold.owner, offset=hold.offset)
        return bool(lapsed)

    @property
    def is_idle(self) -> bool:
        return self._group_commit.is_idle

    def close(self) -> None:
        """Write the rest and release the directory."""
        self._is_closed = True
        failure = self._group_commit.close()  # first, because the rest may take a while
        if failure is not None:
            log.error("the last changes could not be written", reason=str(failure))
        self._sealer.stop()
        self._readers.shutdown(cancel_futures=True)
        self._archivists.shutdown(cancel_futures=True)
        self._upkeep.shutdown(cancel_futures=True)
        self._mark.close()
        self._store.close()

    def _on_damage(self, piece: Piece) -> None:
        log.error("a part of the log is lost", first=piece.first, last=piece.last, reason=str(Reason.DAMAGED))

    def _on_seal_error(self, error: Exception) -> None:
        log.warning("sealing failed", reason=str(error))


def _lost_before(run: Run, before: tuple[int, int] | None, gaps: Sequence[Gap]) -> Iterator[Lost]:
    """Messages of a topic whose sequences are missing where a part of the log is lost.

    Its topics are not known otherwise. Messages at QoS 0 among them may be counted, too.
    """
    if before is None:
        return
    offset, sequence = before
    is_torn = any(offset < gap.first and gap.last < run.offset for gap in gaps)
    if is_torn and sequence + 1 < run.sequence:
        yield Lost(run.topic, sequence + 1, run.sequence - 1, run.offset - 1)


def _repair_state(store: Store) -> None:
    """Rebuild the database if session records are damaged, so that new records are readable."""
    try:
        for _ in store.scan_keys(STATE):
            pass
    except DamagedData as error:
        log.error("records of sessions are damaged", reason=str(error))
        try:
            store.rebuild()
        except StorageUnavailable as failure:  # use the damaged one
            log.error("the damaged database could not be replaced", reason=str(failure))
        if store.salvage is not None:
            log.warning("the log was damaged", what=store.salvage.note)
