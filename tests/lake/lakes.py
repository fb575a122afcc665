"""Lakes with made up messages in them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.lake import Change, DataFile, Manifest, Table, lake_messages, read_file
from penstock.lake.writer import by_date_and_bucket, write_batches
from penstock.spark.jobs.archive.writers import SCHEMA as MESSAGE_SCHEMA


def add_batch(lake: Path, batch: pa.RecordBatch, buckets: int = 8) -> list[DataFile]:
    """Commit messages as an archive does."""
    table = lake_messages(lake)
    files = write_batches(table.path, by_date_and_bucket(buckets), [batch])

    def change(manifest: Manifest) -> Change:
        return Change(
            by="archive", added=files, batch=manifest.batch + 1, buckets=buckets, schema=MESSAGE_SCHEMA
        )

    table.commit(change)
    return files


def rows_of(table: Table, files: Iterable[DataFile] | None = None) -> list[dict[str, Any]]:
    """The rows of some files, or of all that are live, by offset."""
    wanted = table.manifest().files.values() if files is None else files
    batches = [batch for file in wanted for batch in read_file(table.absolute(file))]
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["offset"])


def offsets_of(table: Table) -> list[int]:
    """The offsets of all rows that are live."""
    return [row["offset"] for row in rows_of(table)]
