"""Lake of Parquet tables, each with a manifest of its live files. Needs no Spark."""

from penstock.lake.errors import DamagedFile, InvalidLake
from penstock.lake.layout import bucket_of, lake_path, missing_folder
from penstock.lake.manifest import Change, DataFile, Expired, Intent, Manifest
from penstock.lake.reader import read_file
from penstock.lake.table import Commit, Table, lake_insights, lake_messages
from penstock.lake.writer import drop_files

__all__ = [
    "Change",
    "Commit",
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
]
