"""Those who stage rows and commit them, as a door does for them, and what they must find in the log."""

from collections.abc import Sequence

from penstock.core.access.identity import Identity
from penstock.core.durability.records import ReleasedRecord
from penstock.core.staging.commit import Released
from penstock.core.staging.stages import Part
from penstock.errors import PenstockError, UnknownStage
from penstock.runs import Run
from tests.support.broker import Stage
from tests.support.disk import Disk
from tests.support.samples import make_run, payloads_of

ANYONE = Identity(None, "writer")


def rows_of(name: str, count: int, topics: Sequence[str] = ("a", "b", "c"), qos: int = 1) -> list[Run]:
    """Rows with payloads that tell them apart, of different lengths."""
    return [
        make_run(topics[number % len(topics)], f"{name}:{number}".encode(), qos=qos)
        for number in range(count)
    ]


def stage_rows(
    stage: Stage, id: str, rows: Sequence[Run], part: int = 0, who: Identity = ANYONE
) -> list[Part | PenstockError]:
    """Stage rows; the list gets the answer."""
    answers: list[Part | PenstockError] = []
    staging = stage.broker.staging
    staging.stage(who, id, part, staging.packing(who).pack(rows), answers.append)
    return answers


class Answers(list[tuple[ReleasedRecord | PenstockError, bool]]):
    """What was answered to a commit."""

    def take(self, result: ReleasedRecord | PenstockError, is_repeated: bool) -> None:
        """Take an answer."""
        self.append((result, is_repeated))

    @property
    def record(self) -> ReleasedRecord:
        """The one answer, which is no error."""
        ((record, _),) = self
        assert isinstance(record, ReleasedRecord), record
        return record


def commit(
    stage: Stage,
    key: str,
    *ids: str,
    who: Identity = ANYONE,
    rows: Sequence[int] | None = None,
    any_ids: bool = False,
) -> Answers:
    """Ask for a commit."""
    answers = Answers()
    done: Released = answers.take
    stage.broker.staging.commit(who, key, ids, done, rows=rows, any_ids=any_ids)
    return answers


def logged(disk: Disk) -> list[bytes]:
    """The payloads of everything that is in the log, in its order."""
    return [payload for run in disk.content.runs for payload in payloads_of(run)]


class Writer:
    """Stages the parts of one job and commits it, trying again until each is answered."""

    def __init__(self, name: str, parts: Sequence[int], *, is_wanted: bool = True) -> None:
        self.name = name
        self.is_wanted = is_wanted  # otherwise it never commits
        self.wants_drop = False
        self._counts = list(parts)
        self._staged: set[int] = set()
        self._answers: Answers | list[Part | PenstockError] | None = None
        self._part = 0
        self.record: ReleasedRecord | None = None
        self.has_asked = False  # for its commit

    @property
    def rows(self) -> list[bytes]:
        """The payloads of its rows, in their order."""
        return [
            payload
            for part, count in enumerate(self._counts)
            for run in rows_of(f"{self.name}/{part}", count)
            for payload in payloads_of(run)
        ]

    @property
    def is_done(self) -> bool:
        """It has got what it wants."""
        return self.record is not None or (not self.is_wanted and len(self._staged) == len(self._counts))

    def lose(self) -> None:
        """The server is gone, and so is what it was about to say."""
        self._answers = None

    def step(self, stage: Stage) -> None:
        """Take the answer, if there is one, and ask for the next thing."""
        if self._answers is not None and not self._answers:
            return
        answer = self._answers[0] if self._answers else None
        self._answers = None
        if isinstance(answer, Part):
            self._staged.add(self._part)
        elif isinstance(answer, tuple) and isinstance(answer[0], ReleasedRecord):
            self.record = answer[0]
        if not self.is_done:
            self._ask(stage)

    def _ask(self, stage: Stage) -> None:
        left = [part for part in range(len(self._counts)) if part not in self._staged]
        try:
            if left:
                self._part = left[0]
                rows = rows_of(f"{self.name}/{self._part}", self._counts[self._part])
                self._answers = stage_rows(stage, self.name, rows, self._part)
            else:
                self._answers = commit(stage, f"key of {self.name}", self.name)
                self.has_asked = True
        except UnknownStage:
            raise
        except PenstockError:
            self._answers = None  # it tries again
