"""Proof of completeness: one walk over all runs of a topic, by epoch and sequence.

Each publish to a topic takes the next sequence, and a pair of epoch and sequence is never assigned twice. A
new epoch continues after the last committed message. So, over all epochs:

- two rows with the same epoch and sequence are duplicates;
- if the next row does not have the next sequence, the sequences in between are missing and need a reason;
- a new epoch that begins at or below the end of an older one shows that the log lost its end: the rows of the
  older epoch stay valid, and nothing is missing;
- within an epoch, offsets rise with sequences.

Messages before the first row of a topic are known to be missing only if the lake begins where the log did.
Messages after its last row show only in the log, or once a later row arrives.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from msgspec import Struct

from penstock.spark.jobs.audit.explain import DAMAGED_FILE, UNEXPLAINED, Reasons
from penstock.spark.jobs.audit.runs import Finding, Kind, OffsetRange, Run

_MORE_THAN_ANY = 1 << 63
_COUNTED = (Kind.TALLY, Kind.SUM, Kind.CLAIM)


def walk(
    runs: Iterable[Run], reasons: Reasons, audited: OffsetRange, *, is_from_start: bool
) -> Iterator[Finding]:
    """Findings about topics whose runs arrive in order.

    Args:
        audited: the offsets to audit. Runs elsewhere show what is missing at its edges.
        is_from_start: the lake begins where the log did.
    """
    for _, own in groupby(runs, key=attrgetter("topic")):
        yield from _Topic(reasons, audited, is_from_start).walk(own)


class _Topic:
    """State of the walk over one topic."""

    def __init__(self, reasons: Reasons, audited: OffsetRange, is_from_start: bool) -> None:
        self._reasons = reasons
        self._audited = audited
        self._is_from_start = is_from_start
        self._met: Run | None = None  # the furthest run, in the lake or in the log
        self._lake: Run | None = None  # the furthest in the lake
        self._log: Run | None = None  # rest of the log's run that is not compared yet
        self._furthest_of_log: Run | None = None
        self._known: dict[str, Finding] = {}

    def walk(self, runs: Iterator[Run]) -> Iterator[Finding]:
        for run in runs:
            yield from self._settle_log(run)
            yield from self._find_hole(run)
            if run.path:
                yield from self._find_double(run)
                if self._lake is None or _place(run) > _place(self._lake):
                    self._lake = run
            else:
                self._log = self._furthest_of_log = run
            if self._met is None or _place(run) > _place(self._met):
                self._met = run
        yield from self._settle_log(None)
        yield from self._known.values()

    def _find_hole(self, run: Run) -> Iterator[Finding]:
        met = self._met
        if met is None:
            if not self._is_from_start:
                return
            last, after = 0, 0
        else:
            last, after = met.last, met.last_offset
        if run.first > last + 1 and self._concerns(after, run):
            count = run.first - 1 - last
            reason = self._reasons.reason(
                run.topic, count, after, run.first_offset, is_one_line=self._is_one_line(run)
            )
            missing = (run.topic, run.epoch, last + 1, run.first - 1, count, reason)
            yield from self._report(Kind.MISSING, missing, after, run.first_offset)

    def _is_one_line(self, run: Run) -> bool:
        """The log, as it was read, leads from the last run to this one.

        A log that lost its end assigned offsets again, so its rows prove nothing about the earlier ones. That
        shows in rows of the lake which the log should have and lacks. If the log had a run of the lake, the
        walk would have met it before, and there would be no gap.
        """
        met, was_read = self._met, self._reasons.was_read
        if run.path and was_read(run.first_offset):
            return False
        if met is None:
            return True
        log = self._furthest_of_log
        is_in_log = log is not None and _place(log) == _place(met)
        if met.epoch != run.epoch:
            return is_in_log and not run.path
        return is_in_log or not was_read(met.last_offset)

    def _concerns(self, after: int, run: Run) -> bool:
        """Messages missing before a run may belong to the audited range."""
        return self._audited.meets(after, run.first_offset) or (
            run.first_offset - after <= 1 and run.is_inside
        )

    def _find_double(self, run: Run) -> Iterator[Finding]:
        lake = self._lake
        if lake is None or lake.epoch != run.epoch:
            return
        if run.first <= lake.last:
            if run.is_inside or lake.is_inside:
                last = min(run.last, lake.last)
                count = last - run.first + 1
                yield Finding(
                    Kind.DOUBLE, run.topic, run.epoch, run.first, last, count, path=run.path, other=lake.path
                )
        elif run.first_offset <= lake.last_offset and run.is_inside:
            yield Finding(
                Kind.OUT_OF_ORDER,
                run.topic,
                run.epoch,
                run.first,
                run.last,
                run.messages,
                "offsets do not rise with sequences",
                run.path,
                lake.path,
            )

    def _settle_log(self, run: Run | None) -> Iterator[Finding]:
        """Report messages of the log that the lake lacks before a run: all earlier runs of the lake are
        known.
        """
        log, lake = self._log, self._lake
        if log is None:
            return
        is_over = run is None or run.epoch != log.epoch
        end = _MORE_THAN_ANY if is_over or run is None else run.first
        first = max(log.first, lake.last + 1) if lake is not None and lake.epoch == log.epoch else log.first
        last = min(log.last, end - 1)
        if first <= last:
            count = last - first + 1
            # the other messages of the run have offsets too
            low, high = log.first_offset + first - log.first, log.last_offset - (log.last - last)
            reason = self._reasons.reason_in_lake(log.topic, count, low, high)
            missing = (log.topic, log.epoch, first, last, count, reason)
            yield from self._report(Kind.ONLY_IN_LOG, missing, low - 1, high + 1)
        begin = max(log.first, end)
        rest = log._replace(first=begin, first_offset=log.first_offset + begin - log.first)
        self._log = rest if end <= log.last else None

    def _report(
        self, kind: Kind, missing: tuple[str, int, int, int, int, str], after: int, before: int
    ) -> Iterator[Finding]:
        """Report unexplained messages at once; sum up the others by reason."""
        topic, epoch, first, last, count, reason = missing
        if reason in (UNEXPLAINED, DAMAGED_FILE):
            yield Finding(kind, topic, epoch, first, last, count, reason, after=after, before=before)
            return
        claim = self._reasons.claim(topic, count, after + 1, before - 1, reason)
        if claim is not None:
            yield Finding(Kind.CLAIM, "", *claim, count, reason)
        known = self._known.get(reason)
        if known is None:
            self._known[reason] = Finding(
                Kind.KNOWN, topic, epoch, first, last, count, reason, after=after, before=before
            )
        else:
            self._known[reason] = known._replace(last=last, messages=known.messages + count, before=before)


def _place(run: Run) -> tuple[int, int]:
    return run.epoch, run.last


class WalkTotals(Struct, frozen=True):
    """Totals of all tasks."""

    topics: int
    epochs: int
    rows: int
    """Number of rows compared, of lake and log."""
    is_all: bool
    """No finding was dropped for exceeding the limit."""
    known: dict[str, int] = {}
    """Number of missing messages by known reason, complete even if findings were dropped."""
    claims: Sequence[Finding] = ()


class WalkCounter:
    """Counter of one task. One task handles all runs of a topic, in a row."""

    def __init__(self) -> None:
        self._topics = 0
        self._rows = 0
        self._epochs: set[int] = set()
        self._known: Counter[str] = Counter()
        self._claims: Counter[tuple[int, int, int, str]] = Counter()

    def watch(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Count runs as they pass."""
        topic: str | None = None
        for run in runs:
            self._rows += run.messages
            if run.is_inside:
                self._topics += run.topic != topic
                self._epochs.add(run.epoch)
                topic = run.topic
            yield run

    def end(self, findings: Iterable[Finding], most: int) -> Iterator[Finding]:
        """Findings up to a limit, then as many known ones, then the totals."""
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
        yield from self._summary(is_all=wrong <= most)

    def _summary(self, *, is_all: bool) -> Iterator[Finding]:
        for reason, messages in self._known.items():
            yield Finding(Kind.SUM, "", 0, 0, 0, messages, reason)
        for (bucket, first, last, reason), messages in self._claims.items():
            yield Finding(Kind.CLAIM, "", bucket, first, last, messages, reason)
        for epoch in sorted(self._epochs) or [0]:
            yield Finding(Kind.TALLY, "", epoch, self._rows, int(not is_all), self._topics)
            self._topics = self._rows = 0


def sum_findings(findings: Sequence[Finding]) -> tuple[list[Finding], WalkTotals]:
    """Separate the totals from the findings of all tasks."""
    tallies = [each for each in findings if each.kind == Kind.TALLY]
    known: Counter[str] = Counter()
    claims: Counter[tuple[int, int, int, str]] = Counter()
    for each in findings:
        if each.kind == Kind.SUM:
            known[each.reason] += each.messages
        elif each.kind == Kind.CLAIM:
            claims[each.epoch, each.first, each.last, each.reason] += each.messages
    totals = WalkTotals(
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
    return [each for each in findings if each.kind not in _COUNTED], totals
