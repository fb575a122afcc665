"""Spark connector: topics and lakes as Spark tables, and the jobs of `penstock pipeline`.

`spark.read.format("penstock")` and `df.write.format("penstock")` need no import. Everything here needs the
extra `spark`. Names load on first use, so that Spark's Python workers start quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.datasource import PenstockDataSource
    from penstock.spark.errors import DataLoss, InvalidColumns, InvalidOption, SparkFailed
    from penstock.spark.session import start_session
    from penstock.spark.tables import read_table, write_table

_MODULES = {
    "DataLoss": "errors",
    "InvalidColumns": "errors",
    "InvalidOption": "errors",
    "PenstockDataSource": "datasource",
    "SparkFailed": "errors",
    "read_table": "tables",
    "start_session": "session",
    "write_table": "tables",
}

__all__ = [
    "DataLoss",
    "InvalidColumns",
    "InvalidOption",
    "PenstockDataSource",
    "SparkFailed",
    "read_table",
    "start_session",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
