"""What becomes of rows that left the log before they were archived: a failure, or a note in the lake."""

from collections.abc import Sequence

from penstock.client import Gap
from penstock.pipeline.jobs.running import Progress
from penstock.pipeline.lake import Manifest, missing_folder
from penstock.pipeline.lake.manifest import join_gaps
from penstock.pipeline.source.errors import DataLoss
from penstock.pipeline.source.missing import Losses

_SEEN_BEFORE = "lost-uncommitted"
"""Rows that were archived before a crash of the server took them: the lake has them."""
_NEVER_THERE = "never-stored"
"""Rows that the disk of the server did not take: waiting for them, or beginning anew, brings none back."""


class ArchiveLosses:
    """Judges gaps of the log."""

    def __init__(self, lake: str, keep_going: bool, progress: Progress) -> None:
        self._side_table = Losses(False, str(missing_folder(lake)))
        self._keep_going = keep_going
        self._progress = progress

    def judge(self, gaps: Sequence[Gap]) -> None:
        """Refuse to go on without rows that nobody has.

        Raises:
            DataLoss: some are missing, and that is not accepted.
        """
        lost = [gap for gap in gaps if gap.reason not in (_SEEN_BEFORE, _NEVER_THERE)]
        if lost and not self._keep_going:
            raise DataLoss(
                f"offsets {lost[0].first} to {lost[0].last} are not in the log any more ({lost[0].reason}), "
                "and were not archived; --keep-going archives the rest and declares what is missing"
            )

    def note(self, found: Sequence[Gap]) -> None:
        """Tell of what is missing of a batch and stops nobody."""
        for gap in found:
            if gap.reason == _SEEN_BEFORE:
                self._progress.note(f"the log lost offsets {gap.first} to {gap.last}, which the lake has")
            if gap.reason == _NEVER_THERE:
                self._progress.note(f"the log never stored offsets {gap.first} to {gap.last}; it is declared")

    def declare(self, manifest: Manifest) -> None:
        """Write all that is missing down in the side table too; what is there already stays as it is.

        The manifest comes first: who dies before this does it when it starts again.
        """
        if manifest.gaps and manifest.start is not None and manifest.cursor is not None:
            self._side_table.declare(manifest.gaps, manifest.start, manifest.cursor)


def missing_of(found: Sequence[Gap]) -> tuple[Gap, ...]:
    """What the lake has to declare of gaps in the log."""
    return tuple(gap for gap in join_gaps(found) if gap.reason != _SEEN_BEFORE)
