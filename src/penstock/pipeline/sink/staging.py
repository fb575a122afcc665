"""Puts rows into stages and publishes stages, for the writers of batches and of streams and for `replay`.

A stage is named `<key>:<partition>:<run>.<attempt>`; the run is one life of a driver. No two attempts ever
share a stage, so that one which was given up and lives on cannot add to what another has staged: whoever
commits names the attempts that count. What the others have left is found by how its name begins.

A stage may lose parts while others are still on their way: it lapses, or somebody drops it. So a commit says
how many rows each stage has to have, and the server publishes all of them or nothing.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain, islice

import pyarrow as pa

from penstock.client import HttpClient, HttpRefused, StageCommit
from penstock.client.requests import AnswerOverdue
from penstock.errors import Conflict, PenstockError, QuotaExceeded, TooLarge, UnknownStage
from penstock.pipeline.sink.rows import halves
from penstock.pipeline.source.connection import Connection, Patience

PART_BYTES = 8 * 1024 * 1024
"""About how large a part is; the server takes less if it says so."""
PART_ROWS = 100_000
MOST_STAGES = 10_000
"""How many a server takes in one commit."""
QUIET_S = 30.0
"""How long nothing may have come from an earlier run before it is taken for dead."""

_ROW = re.compile(r"row (\d+): (.*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9._:@=~-]{1,120}")
_COLON = "~."


def name_of(key: str) -> str:
    """What the names of the stages for a key begin with, and of no other key."""
    name = key.replace("~", "~~").replace(":", _COLON)
    if _PLAIN.fullmatch(name) is not None:
        return f"{name}:"
    return f"~key-{blake2b(key.encode(), digest_size=16).hexdigest()}:"


def names_under(key: str) -> str:
    """What the names of the stages begin with for all keys `<key>:...`, which are short and plain."""
    return name_of(key).removesuffix(":") + _COLON


class StageWriter:
    """Writes the rows of one attempt into a stage of its own, part by part.

    Args:
        key: what the stage will be committed under.
        label: which rows of it these are.
        run: one life of whoever commits; what dead ones have left for the key is in the way of this one.
        attempt: what no other attempt of this run is called.
    """

    def __init__(self, connection: Connection, key: str, label: str, run: str, attempt: str) -> None:
        self._connection = connection
        self._prefix = name_of(key)
        self._run = run
        self.id = f"{self._prefix}{label}:{run}.{attempt}"
        self.rows = 0
        self._parts = 0
        self._part_bytes, self._part_rows = PART_BYTES, PART_ROWS

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Stage all rows, in their order, and tell how many there were; none leave no stage.

        Raises:
            PenstockError: it cannot be done; nothing is left of it.
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
            drop(self._connection, [self.id] if self._parts else [])
            raise
        return self.rows

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows in batches that fit into a part, unless a single row does not."""
        for batch in batches:
            yield from self._cut(batch)

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows > 1 and (batch.nbytes > self._part_bytes or batch.num_rows > self._part_rows):
            for half in halves(batch):
                yield from self._cut(half)
        elif batch.num_rows:
            yield batch

    def _send(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Send a part; if the server finds it too large, in two halves, and smaller ones from then on."""
        if not batches:
            return
        rows = sum(batch.num_rows for batch in batches)
        try:
            self._insist(lambda client: client.stage(self.id, batches=batches, part=self._parts))
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

    def _insist(self, call: Callable[[HttpClient], object]) -> None:
        """Ask until it works, and make room if what an earlier run has left may be in the way."""
        patience = Patience(self._connection.retry_for_s)
        others = _Others(self._connection, self._prefix, self._run)
        while True:
            try:
                call(self._connection.client())
            except PenstockError as error:
                if error.code != QuotaExceeded.code or not others.drop_dead():
                    patience.wait(error)
            else:
                return


class _Others:
    """What other runs have staged for a key, watched by one that finds no room."""

    def __init__(self, connection: Connection, prefix: str, run: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._run = run
        self._seen: dict[str, tuple[dict[str, str], float]] = {}  # by run: its stages, and since when

    def drop_dead(self) -> bool:
        """Drop what belongs to runs that have been quiet for a while; whether there was anything."""
        with suppress(PenstockError):
            dead = self._dead(self._connection.client().stages_lapse_at(self._prefix))
            drop(self._connection, dead)
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


def _with_topic(error: HttpRefused, batches: Sequence[pa.RecordBatch]) -> HttpRefused:
    """The same refusal with the topic of its row, whose number in a part says nothing to anybody."""
    found = _ROW.match(str(error))
    if found is None:
        return error
    topics = chain.from_iterable(batch.column("topic") for batch in batches)
    topic = next(islice(topics, int(found[1]), None), None)
    text = f"a row of the topic {topic} is refused: {found[2]}"
    return HttpRefused(text, status=error.status, code=error.code, retryable=error.retryable)


def commit(connection: Connection, key: str, stages: Mapping[str, int]) -> StageCommit:
    """Publish stages in this order, unless the key was committed before; nothing is left of either.

    Args:
        stages: how many rows were put into each.

    Raises:
        Conflict: not all rows are published that were to be.
        PenstockError: it cannot be done, or nobody knows: whoever tries again with the same key does not
            publish twice.
    """
    ids, rows = list(stages), list(stages.values())
    if len(ids) > MOST_STAGES:
        raise TooLarge(
            f"{len(ids)} partitions have rows, and a commit takes {MOST_STAGES}: use coalesce({MOST_STAGES})"
        )
    patience = Patience(connection.retry_for_s)
    while True:
        try:
            done = connection.client().commit_stages(key, ids, rows=rows, any_ids=True)
            break
        except PenstockError as error:
            if isinstance(error, AnswerOverdue) and _is_there(connection):
                patience.reset()  # it is at work: a large commit takes longer than an answer may
            patience.wait(error)
    clear(connection, name_of(key))  # whoever else has staged for it finds that it is made
    if not done.duplicate and done.rows != sum(rows):
        raise Conflict(f"{sum(rows)} rows were staged for the key {key}, and {done.rows} are published")
    return done


def _is_there(connection: Connection) -> bool:
    """Whether the server answers at all."""
    with suppress(PenstockError):
        list(connection.client().stages("-"))
        return True
    return False


def drop(connection: Connection, ids: Iterable[str]) -> None:
    """Forget stages, as far as that is possible; what stays lapses."""
    for id in ids:
        try:
            connection.client().drop_stage(id)
        except HttpRefused as error:
            if error.code != UnknownStage.code:
                return
        except PenstockError:
            return


def clear(connection: Connection, prefix: str, run: str | None = None) -> None:
    """Forget all stages whose names begin with something, or those of one run among them."""
    with suppress(PenstockError):
        found = list(connection.client().stages(prefix))
        drop(connection, [id for id in found if run is None or _run_of(id) == run])


def _run_of(id: str) -> str:
    return id.rpartition(":")[2].partition(".")[0]
