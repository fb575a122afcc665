"""A lake: tables of Parquet files, each behind a manifest of the files that are live."""

from penstock.pipeline.lake.errors import DamagedFile, InvalidLake
from penstock.pipeline.lake.layout import bucket_of, lake_path, missing_folder
from penstock.pipeline.lake.manifest import Change, DataFile, Expired, Intent, Manifest
from penstock.pipeline.lake.reading import read_file, read_table, schema_of
from penstock.pipeline.lake.table import Table, lake_insights, lake_messages
from penstock.pipeline.lake.writing import drop_files, write_table

__all__ = [
    "Change",
    "DamagedFile",
    "DataFile",
    "Expired",
    "Intent",
    "InvalidLake",
    "Manifest",
    "Table",
    "bucket_of",
    "drop_files",
    "lake_insights",
    "lake_messages",
    "lake_path",
    "missing_folder",
    "read_file",
    "read_table",
    "schema_of",
    "write_table",
]
