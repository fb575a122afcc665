"""What a run of the archive has done so far, for its progress and its report."""

import time
from collections.abc import Sequence
from typing import Any

from penstock.client import Gap
from penstock.pipeline.jobs.archive.writers import Written
from penstock.pipeline.jobs.report import counted
from penstock.pipeline.lake import DataFile
from penstock.pipeline.lake.sizes import file_sizes


class Tally:
    """Counts batches, rows, files, and what is missing."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._batches = self._rows = 0
        self._files: list[DataFile] = []
        self._gaps: list[Gap] = []

    def count(self, written: Written, gaps: Sequence[Gap]) -> None:
        """One batch more is in the lake."""
        self._batches += 1
        self._rows += written.rows
        self._files += written.files
        self._gaps += gaps

    def line(self, lag_rows: int) -> str:
        """Where the run is, for people."""
        rate = round(self._rate())
        done = f"{counted(self._batches, 'batch', 'batches')}, {counted(self._rows, 'row')}"
        return f"{done}{f', {rate:,} rows/s' if rate else ''}; {counted(lag_rows, 'row')} behind"

    def facts(self) -> dict[str, Any]:
        """The figures of the run."""
        return {
            "batches": self._batches,
            "rows": self._rows,
            "rows_per_s": round(self._rate()),
            "written": file_sizes(self._files),
            "missing_rows": sum(gap.last - gap.first + 1 for gap in self._gaps),
        }

    def missing(self) -> list[dict[str, Any]]:
        """What the log no longer had, as rows of a table."""
        return [{"first": gap.first, "last": gap.last, "reason": gap.reason} for gap in self._gaps]

    def _rate(self) -> float:
        return self._rows / max(time.monotonic() - self._began, 1e-9)
