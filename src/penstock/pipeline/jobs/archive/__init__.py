"""`penstock pipeline archive`: copies the log into a lake, batch by batch, each exactly once.

The manifest of the lake is the only state: a batch is read behind its cursor, written to files that nobody
sees yet, and committed together with the cursor behind it. Whatever dies on the way leaves all or nothing of
a batch.
"""

from penstock.pipeline.jobs.archive.job import archive
from penstock.pipeline.jobs.archive.options import ArchiveOptions

__all__ = ["ArchiveOptions", "archive"]
