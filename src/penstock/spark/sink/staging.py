"""Staged publishing, for batch writes, streams and `replay`.

A stage is named `<key>:<partition>:<run>.<attempt>`; a run is one lifetime of a driver. No two attempts share
a stage, so a zombie attempt cannot add rows to another's stage: the commit names the attempts that count. The
rest is found by its name prefix.

A stage may lose parts while others are still in transit: it lapses, or is dropped. So a commit states the
number of rows of each stage, and the server publishes all of them or nothing.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain, islice

import pyarrow as pa

from penstock.client import HttpClient, HttpRefused, StageCommit
from penstock.client.http.transport import ResponseTimeout
from penstock.errors import Conflict, PenstockError, QuotaExceeded, TooLarge, UnknownStage
from penstock.spark.connection import Backoff, Connection

PART_BYTES = 8 * 1024 * 1024
"""Target size of a part; the server may demand less."""
PART_ROWS = 100_000
MAX_STAGES = 10_000
"""Limit of stages in one commit."""
QUIET_S = 30.0
"""Time without activity after which an earlier run counts as dead."""
_ROW = re.compile(r"row (\d+): (.*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9._:@=~-]{1,120}")
_COLON = "~."


class StageWriter:
    """Writes the rows of one attempt into a stage of its own, part by part.

    Args:
        key: the key of the later commit.
        label: distinguishes the stages of one key.
        run: one lifetime of the committer; stages of dead runs may block this one.
        attempt: unique within the run.
    """

    def __init__(self, connection: Connection, key: str, label: str, run: str, attempt: str) -> None:
        self._connection = connection
        self._prefix = stage_prefix(key)
        self._run = run
        self.id = f"{self._prefix}{label}:{run}.{attempt}"
        self.rows = 0
        self._parts = 0
        self._part_bytes, self._part_rows = PART_BYTES, PART_ROWS

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Stage all rows in order, and return their number; no rows make no stage.

        Raises:
            PenstockError: it failed; the stage is dropped.
        """
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        try:
            for batch in self._pieces(batches):
                if waiting and (
                    rows + batch.num_rows > self._part_rows or size + batch.nbytes > self._part_bytes
                ):
                    self._send(waiting)
                    waiting, rows, size = [], 0, 0
                waiting.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
            self._send(waiting)
        except BaseException:
            drop_stages(self._connection, [self.id] if self._parts else [])
            raise
        return self.rows

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows in batches that fit into a part, except single rows that are too large."""
        for batch in batches:
            yield from self._cut(batch)

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows > 1 and (batch.nbytes > self._part_bytes or batch.num_rows > self._part_rows):
            for half in halves(batch):
                yield from self._cut(half)
        elif batch.num_rows:
            yield batch

    def _send(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Send a part; if the server refuses it as too large, halve it and continue with smaller parts."""
        if not batches:
            return
        rows = sum(batch.num_rows for batch in batches)
        try:
            self._send_with_retries(lambda client: client.stage(self.id, batches=batches, part=self._parts))
        except HttpRefused as error:
            if error.code != TooLarge.code or rows == 1:
                raise _with_topic(error, batches) from None
            self._part_bytes = max(1, sum(batch.nbytes for batch in batches) // 2)
            self._part_rows = max(1, rows // 2)
            middle = len(batches) // 2
            for half in (batches[:middle], batches[middle:]) if middle else zip(halves(batches[0])):
                self._send(half)
        else:
            self._parts += 1
            self.rows += rows

    def _send_with_retries(self, call: Callable[[HttpClient], object]) -> None:
        """Call the server with retries, and drop stages of dead runs if a quota is full."""
        patience = Backoff(self._connection.retry_for_s)
        others = _OtherRuns(self._connection, self._prefix, self._run)
        while True:
            try:
                call(self._connection.client())
            except PenstockError as error:
                if error.code != QuotaExceeded.code or not others.drop_dead():
                    patience.wait(error)
            else:
                return


def halves(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split a batch of more than one row in two."""
    middle = batch.num_rows // 2
    return batch.slice(0, middle), batch.slice(middle)


def _with_topic(error: HttpRefused, batches: Sequence[pa.RecordBatch]) -> HttpRefused:
    """The same error with the topic of its row instead of the row number in a part."""
    found = _ROW.match(str(error))
    if found is None:
        return error
    topics = chain.from_iterable(batch.column("topic") for batch in batches)
    topic = next(islice(topics, int(found[1]), None), None)
    text = f"a row of the topic {topic} was refused: {found[2]}"
    return HttpRefused(text, status=error.status, code=error.code, retryable=error.retryable)


class _OtherRuns:
    """Stages of other runs for a key, observed while a quota is full."""

    def __init__(self, connection: Connection, prefix: str, run: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._run = run
        self._seen: dict[str, tuple[dict[str, str], float]] = {}  # by run: its stages, and since when

    def drop_dead(self) -> bool:
        """Drop stages of runs that were quiet for a while; True if there were any."""
        with suppress(PenstockError):
            dead = self._dead(self._connection.client().stages_lapse_at(self._prefix))
            drop_stages(self._connection, dead)
            return bool(dead)
        return False

    def _dead(self, found: Mapping[str, str]) -> list[str]:
        runs: dict[str, dict[str, str]] = {}
        for id, lapses_at in found.items():
            runs.setdefault(_run_of(id), {})[id] = lapses_at
        runs.pop(self._run, None)
        now = time.monotonic()
        self._seen = {
            run: before
            if (before := self._seen.get(run)) is not None and before[0] == stages
            else (stages, now)
            for run, stages in runs.items()
        }
        quiet = [run for run, (_, since) in self._seen.items() if now - since >= QUIET_S]
        return [id for run in quiet for id in self._seen.pop(run)[0]]


def commit(connection: Connection, key: str, stages: Mapping[str, int]) -> StageCommit:
    """Publish stages in this order, unless the key was committed before, and drop them.

    Args:
        stages: number of rows by stage.

    Raises:
        Conflict: fewer rows were published than staged.
        PenstockError: it failed, or the outcome is unknown; a retry with the same key does not publish twice.
    """
    ids, rows = list(stages), list(stages.values())
    if len(ids) > MAX_STAGES:
        raise TooLarge(
            f"{len(ids)} partitions have rows, and a commit takes at most {MAX_STAGES}: "
            f"use coalesce({MAX_STAGES})"
        )
    patience = Backoff(connection.retry_for_s)
    while True:
        try:
            done = connection.client().commit_stages(key, ids, rows=rows, any_ids=True)
            break
        except PenstockError as error:
            if isinstance(error, ResponseTimeout) and _is_reachable(connection):
                patience.reset()  # a large commit takes longer than the timeout
            patience.wait(error)
    drop_matching(connection, stage_prefix(key))  # other attempts find the key committed
    if not done.duplicate and done.rows != sum(rows):
        raise Conflict(f"{sum(rows)} rows were staged for the key {key}, but {done.rows} were published")
    return done


def _is_reachable(connection: Connection) -> bool:
    """The server responds."""
    with suppress(PenstockError):
        list(connection.client().stages("-"))
        return True
    return False


def drop_stages(connection: Connection, ids: Iterable[str]) -> None:
    """Drop stages, best effort; the rest lapses."""
    for id in ids:
        try:
            connection.client().drop_stage(id)
        except HttpRefused as error:
            if error.code != UnknownStage.code:
                return
        except PenstockError:
            return


def drop_matching(connection: Connection, prefix: str, run: str | None = None) -> None:
    """Drop all stages with a name prefix, or those of one run among them."""
    with suppress(PenstockError):
        found = list(connection.client().stages(prefix))
        drop_stages(connection, [id for id in found if run is None or _run_of(id) == run])


def stage_prefix(key: str) -> str:
    """Name prefix of the stages for a key, and of no other key."""
    name = key.replace("~", "~~").replace(":", _COLON)
    if _PLAIN.fullmatch(name) is not None:
        return f"{name}:"
    return f"~key-{blake2b(key.encode(), digest_size=16).hexdigest()}:"


def stage_prefix_under(key: str) -> str:
    """Name prefix of the stages for all keys `<key>:...`, which must be short and plain."""
    return stage_prefix(key).removesuffix(":") + _COLON


def _run_of(id: str) -> str:
    return id.rpartition(":")[2].partition(".")[0]
