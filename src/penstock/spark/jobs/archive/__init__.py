"""Archive: `penstock pipeline archive` copies the log into a lake, batch by batch, exactly once.

The manifest of the lake is the only state. A batch is read after the manifest's cursor, written to files that
no reader sees yet, and committed together with the cursor after it. A crash leaves all or nothing of a batch.
"""

from penstock.spark.jobs.archive.job import archive
from penstock.spark.jobs.archive.options import ArchiveOptions

__all__ = ["ArchiveOptions", "archive"]
