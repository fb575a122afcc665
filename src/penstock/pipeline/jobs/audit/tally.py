"""Counts along with a walk: what was met, and whether there were more findings than one brings home.

What only has to be counted is summed up here, so that it never stands in the way of what has to be told.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from penstock.pipeline.jobs.audit.findings import Finding, Kind
from penstock.pipeline.jobs.audit.runs import Run

_COUNTED = (Kind.TALLY, Kind.SUM, Kind.CLAIM)


class Tallies(Struct, frozen=True):
    """What all tasks have counted together."""

    topics: int
    epochs: int
    rows: int
    """All that were walked over, of the lake and of the log."""
    is_all: bool
    """Everything that was found was brought home."""
    known: dict[str, int] = {}
    """How many messages are missing for each known reason, whether or not they were all brought home."""
    claims: Sequence[Finding] = ()


class Tally:
    """What one task meets. Each topic is met by one task, and its runs come one after another."""

    def __init__(self) -> None:
        self._topics = 0
        self._rows = 0
        self._epochs: set[int] = set()
        self._known: Counter[str] = Counter()
        self._claims: Counter[tuple[int, int, int, str]] = Counter()

    def watch(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Count runs on their way."""
        topic: str | None = None
        for run in runs:
            self._rows += run.messages
            if run.is_inside:
                self._topics += run.topic != topic
                self._epochs.add(run.epoch)
                topic = run.topic
            yield run

    def end(self, findings: Iterable[Finding], most: int) -> Iterator[Finding]:
        """So many findings at most, as many of what is known, and then what was counted."""
        wrong = known = 0
        for each in findings:
            if each.kind == Kind.CLAIM:
                self._claims[each.epoch, each.first, each.last, each.reason] += each.messages
            elif each.kind == Kind.KNOWN:
                self._known[each.reason] += each.messages
                known += 1
                if known <= most:
                    yield each
            else:
                wrong += 1
                if wrong <= most:
                    yield each
        yield from self._counted(is_all=wrong <= most)

    def _counted(self, *, is_all: bool) -> Iterator[Finding]:
        for reason, messages in self._known.items():
            yield Finding(Kind.SUM, "", 0, 0, 0, messages, reason)
        for (bucket, first, last, reason), messages in self._claims.items():
            yield Finding(Kind.CLAIM, "", bucket, first, last, messages, reason)
        for epoch in sorted(self._epochs) or [0]:
            yield Finding(Kind.TALLY, "", epoch, self._rows, int(not is_all), self._topics)
            self._topics = self._rows = 0


def add_up(findings: Sequence[Finding]) -> tuple[list[Finding], Tallies]:
    """Take what was counted out of what tasks brought home."""
    tallies = [each for each in findings if each.kind == Kind.TALLY]
    known: Counter[str] = Counter()
    claims: Counter[tuple[int, int, int, str]] = Counter()
    for each in findings:
        if each.kind == Kind.SUM:
            known[each.reason] += each.messages
        elif each.kind == Kind.CLAIM:
            claims[each.epoch, each.first, each.last, each.reason] += each.messages
    counted = Tallies(
        sum(each.messages for each in tallies),
        len({each.epoch for each in tallies if each.epoch}),
        sum(each.first for each in tallies),
        not any(each.last for each in tallies),
        dict(known),
        [
            Finding(Kind.CLAIM, "", bucket, first, last, messages, reason)
            for (bucket, first, last, reason), messages in claims.items()
        ],
    )
    return [each for each in findings if each.kind not in _COUNTED], counted
