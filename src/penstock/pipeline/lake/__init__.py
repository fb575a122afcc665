"""A lake: tables of Parquet files, each behind a manifest of the files that are live.

What needs Spark is loaded when it is first asked for: files and manifests are read without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.pipeline.lake.errors import DamagedFile, InvalidLake
from penstock.pipeline.lake.layout import bucket_of, lake_path, missing_folder
from penstock.pipeline.lake.manifest import Change, DataFile, Expired, Intent, Manifest
from penstock.pipeline.lake.reading import read_file
from penstock.pipeline.lake.table import Commit, Table, lake_insights, lake_messages

if TYPE_CHECKING:
    from penstock.pipeline.lake.frames import read_table, schema_of
    from penstock.pipeline.lake.writing import drop_files, write_table

_LOADED_LATER = {
    "drop_files": "writing",
    "read_table": "frames",
    "schema_of": "frames",
    "write_table": "writing",
}

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
    "read_table",
    "schema_of",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name in _LOADED_LATER:
        return getattr(import_module(f"{__name__}.{_LOADED_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
