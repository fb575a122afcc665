"""Staged publishing: messages that are checked and stored, and invisible until their commit.

A stage has parts, one per sender; sending a part again replaces it, so a sender without a response may retry.
A stage without a commit lapses. `commit.py` does what follows a decision. With a data directory a part is
stored before it is acknowledged: first its chunks (`uploads.py`), then the record that makes them a part.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import structlog

from penstock.core.access.identity import Identity
from penstock.core.durability.records import CHUNKS, ChunkRecord
from penstock.core.node import Node
from penstock.core.publishing.publish import Publisher
from penstock.core.staging.commit import Released, StageCommits
from penstock.core.staging.packing import Packed, Packing, check_right, with_pauses
from penstock.core.staging.stages import Part, Stage, Stages
from penstock.core.staging.uploads import Staged, Upload, Uploads, as_known
from penstock.errors import (
    Conflict,
    InvalidRequest,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    UnknownStage,
)

log = structlog.get_logger("penstock.stage")

MOST_PARTS = 100_000
MOST_IDS = 10_000
"""Most stages in one commit."""
_ID = re.compile(r"[A-Za-z0-9._:@=~-]{1,200}")
_KEY = re.compile(r"[!-~]([ -~]{0,198}[!-~])?")
_SECOND_US = 1_000_000

Pace = Callable[[Iterable[str]], Iterable[str]]
Dropped = Callable[[PenstockError | None], None]
"""Called when a stage is gone for good, or with the reason why it may return."""


class Staging:
    """Takes parts, keeps them until their commit comes, and sees to it that it is made once."""

    def __init__(self, node: Node, publishing: Publisher) -> None:
        self._node = node
        self._stages = Stages(node)
        self._uploads = Uploads(node, self._on_uploaded)
        self._releasing = StageCommits(node, publishing)
        self._bytes = 0  # of stages, and of what is on its way into one
        self.stop = self._releasing.stop

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self._stages)

    @property
    def bytes(self) -> int:
        """Weight of all stages, and of decided commits that are not published yet."""
        return self._bytes + self._releasing.bytes

    def restore(self) -> None:
        """Recover decided commits and waiting stages."""
        found = self._node.state.scan(CHUNKS)
        chunks = {int(number): chunk for number, chunk in found if isinstance(chunk, ChunkRecord)}
        numbers = self._stages.restore(chunks)
        self._releasing.restore(chunks, numbers)
        self._bytes = self._stages.bytes
        for number in chunks:  # of parts that were not complete, or published already
            self._node.recorder.delete(CHUNKS, str(number))

    # Parts

    def packing(self, identity: Identity) -> Packing:
        """Return the packer of a part; it may run in a thread."""
        return Packing(self._node.settings, self._node.access, identity)

    def check(self, identity: Identity, id: str, number: int = 0) -> None:
        """Refuse a part that could not be staged, before its body is read.

        Raises:
            PenstockError: name or number is invalid, it belongs to another owner, or there is no room.
        """
        self._releasing.check_open()
        _check_id(id)
        if not 0 <= number < MOST_PARTS:
            raise InvalidRequest(f"parts have numbers from 0 to {MOST_PARTS - 1}")
        if self._find(id) is not None:
            self.look(identity, id)
        elif id not in self._uploads:
            count = len(self._stages) + self._uploads.count_new(self._stages)
            if count >= self._node.settings.stage.max_stages:
                raise QuotaExceeded(f"stage.max_stages: there are {count} stages already")

    def stage(self, identity: Identity, id: str, number: int, packed: Packed, done: Staged) -> None:
        """Keep the rows of a part, which were packed for the same identity, in place of an earlier one.

        Raises:
            PenstockError: it cannot be kept; nothing has changed.
        """
        self.check(identity, id, number)
        next_number = self._releasing.next_number
        chunks = [(next_number(), chunk) for chunk in packed.chunks]
        part = Part(id, number, self._owner_of(identity), chunks, next_number(), packed.checked)
        self.reserve(part.bytes)
        self._uploads.begin(part, done)

    def reserve(self, bytes: int) -> None:
        """Count bytes that are on their way into a part; `free` undoes it.

        Raises:
            QuotaExceeded: all stages together would have more than they may.
        """
        most = self._node.settings.stage.max_bytes
        if self.bytes + bytes > most:
            raise QuotaExceeded(f"stage.max_bytes: all stages together may have {most} bytes")
        self._bytes += bytes

    def free(self, bytes: int) -> None:
        """These bytes are not here any more."""
        self._bytes -= bytes

    def _on_uploaded(self, upload: Upload, error: PenstockError | None) -> None:
        if error is None:
            self._install(upload)
        else:
            self._give_up(upload, error)

    def _give_up(self, upload: Upload, error: PenstockError) -> None:
        self._forget(upload.part)
        upload.done(error)

    def _install(self, upload: Upload) -> None:
        """Make a part one of its stage, which may have become another's, or have gone, meanwhile."""
        part = upload.part
        stage = self._find(part.stage)
        if stage is not None and stage.owner != part.owner:
            self._give_up(upload, NotAuthorized(f"the stage {part.stage} belongs to another owner"))
            return
        before = self._stages.put(part)
        if before is not None:
            self._forget(before)
        self._uploads.outdate(part)

        def report(failure: Exception | None) -> None:
            # If it failed, it is stored as soon as possible; a client that got the error sends it again.
            upload.done(part if failure is None else as_known(failure))

        self._releasing.when_stored(report)

    def _forget(self, part: Part) -> None:
        self._bytes -= part.bytes
        self._stages.forget(part)

    # Stages

    def look(self, identity: Identity, id: str) -> Stage:
        """Return the stage of an id.

        Raises:
            UnknownStage: there is none, or it has lapsed.
            NotAuthorized: it belongs to another owner.
        """
        stage = self._find(id)
        if stage is None:
            raise UnknownStage(f"there is no stage {id}: it was never made, has lapsed, or is committed")
        if stage.owner != self._owner_of(identity):
            raise NotAuthorized(f"the stage {id} belongs to another owner")
        return stage

    def names(self, identity: Identity, prefix: str = "") -> list[str]:
        """Return the names of an owner's stages with a prefix."""
        owner = self._owner_of(identity)
        own = (stage for stage in self._stages if stage.owner == owner and stage.id.startswith(prefix))
        return [stage.id for stage in own if not self._stages.has_lapsed(stage)]

    def _find(self, id: str) -> Stage | None:
        stage = self._stages.find(id)
        if stage is not None and self._stages.has_lapsed(stage):
            self._lapse(stage)
            stage = None
        return stage

    def _lapse(self, stage: Stage) -> None:
        log.warning("a stage has lapsed", stage=stage.id, owner=stage.owner, rows=stage.rows)
        self._drop(stage)

    def lapses_at(self, latest: Stage | Part) -> int:
        """When a stage, or that of its latest part, lapses unless something comes; in wall time."""
        return latest.staged_at + round(self._node.settings.stage.lapse_s * _SECOND_US)

    def drop(self, identity: Identity, id: str, done: Dropped) -> None:
        """Drop a stage; nothing of it is ever published.

        Raises:
            UnknownStage: there is none, or it has lapsed.
            NotAuthorized: it belongs to another owner.
        """
        self._drop(self.look(identity, id))
        self._releasing.when_stored(lambda failure: done(None if failure is None else as_known(failure)))

    def _drop(self, stage: Stage) -> None:
        for part in self._stages.take(stage):
            self._forget(part)

    def reap(self) -> None:
        """Once a second: forget stages whose commit has not come, and keys that are old."""
        for stage in self._stages.lapsed():
            self._lapse(stage)
        self._releasing.reap()

    def _owner_of(self, identity: Identity) -> str | None:
        """Return the owner of a stage; with open access all clients share one owner."""
        return None if self._node.access.is_open else identity.user

    # Their commit

    def unchecked(self, identity: Identity, ids: Iterable[str]) -> list[Part]:
        """Return the parts whose topics were not checked for this caller by the present rules.

        Stages of other owners are left out, so that nothing is revealed about them.
        """
        checked, owner = (self._node.access.generation, identity), self._owner_of(identity)
        stages = (stage for id in set(ids) if (stage := self._find(id)) is not None)
        parts = chain.from_iterable(stage.parts.values() for stage in stages if stage.owner == owner)
        return [part for part in parts if part.checked != checked]

    def check_rights(self, identity: Identity, parts: Iterable[Part]) -> None:
        """Check the rights of staged topics again; call it in a thread.

        Raises:
            NotAuthorized: some of it may not be published.
        """
        self._check_rights(identity, parts, with_pauses)

    def _check_rights(self, identity: Identity, parts: Iterable[Part], pace: Pace) -> None:
        access = self._node.access
        generation, allowed = access.generation, set[str]()
        for part in parts:
            for topic in pace(chain.from_iterable(chunk.topics for _, chunk in part.chunks)):
                if topic not in allowed:
                    check_right(access, identity, topic)
                    allowed.add(topic)
            part.checked = generation, identity

    def commit(
        self,
        identity: Identity,
        key: str,
        ids: Sequence[str],
        done: Released,
        *,
        rows: Sequence[int] | None = None,
        any_ids: bool = False,
    ) -> None:
        """Publish everything in these stages, in this order, once. Idempotent by key.

        Args:
            rows: expected rows of each stage; None if unknown.
            any_ids: an earlier commit of this key counts as the same, whatever its stages were.

        Raises:
            PenstockError: it cannot be done; nothing has changed.
        """
        if _KEY.fullmatch(key) is None:
            raise InvalidRequest(
                "a key has 1 to 200 printable characters of ASCII, and no blanks around them"
            )
        if len(set(ids)) < len(ids) or len(ids) > MOST_IDS:
            raise InvalidRequest(f"a commit takes up to {MOST_IDS} stages, each once")
        if rows is not None and len(rows) != len(ids):
            raise InvalidRequest(f"there are {len(ids)} stages, and numbers of rows for {len(rows)}")
        for id in ids:
            _check_id(id)
        owner = self._owner_of(identity)
        if self._releasing.join(owner, key, None if any_ids else ids, done):
            return
        self._releasing.check_open()
        stages = [self.look(identity, id) for id in ids]
        if rows is not None:
            _check_rows(stages, rows)
        self._check_rights(identity, self.unchecked(identity, ids), iter)  # few, if any: they were looked at
        parts = [part for stage in stages for part in self._stages.take(stage)]
        self._bytes -= sum(part.bytes for part in parts)
        chunks = [chunk for part in parts for chunk in part.chunks]
        self._releasing.decide(owner, identity, key, ids, chunks, done)


def _check_rows(stages: Sequence[Stage], rows: Sequence[int]) -> None:
    """Refuse stages that are not whole: parts may have lapsed while others were on their way."""
    for stage, wanted in zip(stages, rows, strict=True):
        if stage.rows != wanted:
            raise Conflict(
                f"the stage {stage.id} has {stage.rows} rows in place of {wanted}: stage them again"
            )


def _check_id(id: str) -> None:
    if _ID.fullmatch(id) is None:
        raise InvalidRequest("a stage has a name of 1 to 200 letters, digits and . _ : @ = ~ -")
