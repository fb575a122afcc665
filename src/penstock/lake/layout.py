"""Folder layout of a lake: tables, partitions, and the bucket of a topic.

<lake>/messages/date=2026-11-16/bucket=03/<id>.parquet      rows, by day (UTC) and bucket
<lake>/messages/_manifest/00000000000000000017.json         list of live files; see `table.py`
<lake>/missing/*.parquet                                    ranges that the log no longer had
<lake>/insights/<table>/...                                 tables of the job insights

A lake is a directory that all machines of a cluster see under the same path.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit
from zlib import crc32

import numpy as np
import pyarrow as pa

from penstock.lake.errors import InvalidLake

MESSAGES = "messages"
MISSING = "missing"
INSIGHTS = "insights"
MANIFEST = "_manifest"

DATE, BUCKET = "date", "bucket"
MAX_BUCKETS = 256
DEFAULT_BUCKETS = 8

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Folder of rows without a value in a partition column, as Spark and Hive name it."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DAY_US = 86_400_000_000


def lake_path(lake: str | Path) -> Path:
    """The directory that a path or a `file:` address names.

    Raises:
        InvalidLake: it is an address of another scheme, or not a directory.
    """
    text = str(lake)
    if not text:
        raise InvalidLake("the path of the lake is empty")
    if _SCHEME.match(text):
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise InvalidLake(
                f"{text}: a lake is a directory that all machines see under the same path; "
                "mount it and give that path"
            )
        text = unquote(parts.path)
    path = Path(text).absolute()
    if path.exists() and not path.is_dir():
        raise InvalidLake(f"{path} is a file; a lake is a directory")
    return path


def missing_folder(lake: str | Path) -> Path:
    """The folder that records the ranges which the log no longer had."""
    return lake_path(lake) / MISSING


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """The folder of a partition, named as Spark and Hive do."""
    return "/".join(f"{name}={_escape(value)}" for name, value in partition.items())


def _escape(value: str | None) -> str:
    return NO_VALUE if value is None or value == "" else quote(value, safe=" !$&()+,-.;@_~")


def message_partition(day: int, bucket: int) -> dict[str, str]:
    """The partition of messages of a day, counted from 1970, and a bucket."""
    return {DATE: str(np.datetime64(day, "D")), BUCKET: f"{bucket:02d}"}


def days_of(times: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The day in UTC, counted from 1970, of each time in microseconds; no time may be null."""
    days: np.ndarray[tuple[int], np.dtype[np.int64]] = np.floor_divide(
        times.view(pa.int64()).to_numpy(zero_copy_only=False), _DAY_US
    )
    return days


@lru_cache(maxsize=1 << 16)
def bucket_of(topic: str, buckets: int) -> int:
    """The bucket of a topic: stable forever, and the same on every machine."""
    return crc32(topic.encode()) % buckets


def buckets_of(topics: Sequence[str], buckets: int) -> "np.ndarray[tuple[int], np.dtype[np.int16]]":
    """The bucket of each topic."""
    return np.fromiter((bucket_of(topic, buckets) for topic in topics), np.int16, len(topics))
