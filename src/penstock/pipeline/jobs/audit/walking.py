"""The proof: one walk over all runs of a topic, in the order of epoch and sequence.

The rule. Each publish to a topic takes its next sequence, and (epoch, sequence) is never given twice. A topic
goes on counting behind the last message that was committed when a new epoch begins. So, over all epochs:

- two rows with the same epoch and sequence are the same message, and one of them is too many;
- where the next row does not have the next sequence, the sequences between are missing, and need a reason;
- a new epoch that begins at or below what an older one had shows that the log had lost its end: what the lake
  has of the older epoch stays right, and nothing is missing for it;
- within an epoch, offsets rise with sequences.

What comes before the first row of a topic is known to be missing only if the lake begins where the log did.
What comes behind its last row shows by the log alone, or when the next row arrives.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from penstock.pipeline.jobs.audit.explaining import DAMAGED_FILE, UNEXPLAINED, Explaining
from penstock.pipeline.jobs.audit.findings import Finding, Kind
from penstock.pipeline.jobs.audit.runs import Run, Stretch

_MORE_THAN_ANY = 1 << 63


def walk(
    runs: Iterable[Run], explaining: Explaining, stretch: Stretch, *, is_from_start: bool
) -> Iterator[Finding]:
    """What is wrong, or known to be missing, with topics whose runs come in their order.

    Args:
        stretch: the offsets that are audited. Runs elsewhere show what is missing at its edges.
        is_from_start: the lake begins where the log did.
    """
    for _, own in groupby(runs, key=attrgetter("topic")):
        yield from _Topic(explaining, stretch, is_from_start).walk(own)


class _Topic:
    """How far the walk over one topic is."""

    def __init__(self, explaining: Explaining, stretch: Stretch, is_from_start: bool) -> None:
        self._explaining = explaining
        self._stretch = stretch
        self._is_from_start = is_from_start
        self._met: Run | None = None  # the furthest of this epoch, in the lake or in the log
        self._lake: Run | None = None  # the furthest in the lake
        self._log: Run | None = (
            None  # what the log has from here on, of which it is not known who else has it
        )
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
            reason = self._explaining.reason(
                run.topic, count, after, run.first_offset, is_one_line=self._is_one_line(run)
            )
            place = (run.topic, run.epoch, last + 1, run.first - 1, count, reason)
            yield from self._tell(Kind.MISSING, place, after, run.first_offset)

    def _is_one_line(self, run: Run) -> bool:
        """Whether the log, as it was read, led from what was met last to a run.

        A log that lost its end has given offsets again: what it has there says nothing of what was there. It
        shows by rows of the lake that the log should have, and has not. Had it a run of the lake, it would
        have been met already, and there would be no hole before it.
        """
        met, was_read = self._met, self._explaining.was_read
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
        """Whether what is missing before a run may belong to what is audited."""
        return self._stretch.meets(after, run.first_offset) or (
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
        """Tell what the log has before a run and the lake has not: all earlier runs of the lake are met."""
        log, lake = self._log, self._lake
        if log is None:
            return
        is_over = run is None or run.epoch != log.epoch
        end = _MORE_THAN_ANY if is_over or run is None else run.first
        first = max(log.first, lake.last + 1) if lake is not None and lake.epoch == log.epoch else log.first
        last = min(log.last, end - 1)
        if first <= last:
            count = last - first + 1
            # each message before it and behind it in the run has an offset too
            low, high = log.first_offset + first - log.first, log.last_offset - (log.last - last)
            reason = self._explaining.reason_in_lake(log.topic, count, low, high)
            place = (log.topic, log.epoch, first, last, count, reason)
            yield from self._tell(Kind.ONLY_IN_LOG, place, low - 1, high + 1)
        begin = max(log.first, end)
        rest = log._replace(first=begin, first_offset=log.first_offset + begin - log.first)
        self._log = rest if end <= log.last else None

    def _tell(
        self, kind: Kind, place: tuple[str, int, int, int, int, str], after: int, before: int
    ) -> Iterator[Finding]:
        """Tell what has no good reason at once; the rest is summed up for the topic."""
        topic, epoch, first, last, count, reason = place
        if reason in (UNEXPLAINED, DAMAGED_FILE):
            yield Finding(kind, topic, epoch, first, last, count, reason, after=after, before=before)
            return
        claim = self._explaining.claim(topic, count, after + 1, before - 1, reason)
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
