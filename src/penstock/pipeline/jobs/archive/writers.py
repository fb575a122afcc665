"""How the rows of a batch get into the lake: as files of a table of ours, or with a format of Spark."""

from typing import Protocol

from msgspec import Struct

from penstock.client import Gap
from penstock.pipeline.lake import Change, DataFile, Manifest, Table
from penstock.pipeline.lake.manifest import Epoch
from penstock.pipeline.source.live import Portion


class Written(Struct, frozen=True, kw_only=True):
    """What was written of a batch, and what was missing of it."""

    rows: int
    files: list[DataFile] = []
    gaps: list[Gap] = []
    epochs: dict[int, Epoch] = {}
    """Where the epochs of these rows begin."""


class BatchWriter(Protocol):
    """Writes batches, so that a batch that is written twice is there once."""

    @property
    def table(self) -> Table:
        """The table whose manifest says how far the archive is."""
        ...

    def prepare(self) -> None:
        """Find out whether anything can be written, before anything is.

        Raises:
            InvalidLake: it cannot.
        """
        ...

    def announce(self, manifest: Manifest, portion: Portion) -> Change | None:
        """What has to be in the manifest before the batch is written, if anything."""
        ...

    def write(self, manifest: Manifest, portion: Portion) -> Written:
        """Write the rows of a batch; when this ends they are on the disk.

        Raises:
            Interrupted: the job is to stop, and nothing of the batch counts.
        """
        ...

    def drop(self, written: Written) -> None:
        """Undo what was written and is not going to be committed, as far as that is possible."""
        ...
