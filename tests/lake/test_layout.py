from pathlib import Path

import pyarrow as pa
import pytest

from penstock.lake.errors import InvalidLake
from penstock.lake.layout import (
    NO_VALUE,
    bucket_of,
    buckets_of,
    days_of,
    lake_path,
    message_partition,
    partition_folder,
)

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    "text", ["/data/lake", "file:///data/lake", "file:/data/lake", "file://localhost/data/lake"]
)
def test_a_lake_is_a_path_or_a_file_address(text: str) -> None:
    assert lake_path(text) == Path("/data/lake")


def test_a_file_address_may_have_escaped_characters() -> None:
    assert lake_path("file:///data/my%20lake") == Path("/data/my lake")


def test_a_path_is_made_whole_because_workers_have_another_folder() -> None:
    assert lake_path("lake") == Path.cwd() / "lake"


@pytest.mark.parametrize(
    "text", ["s3://bucket/lake", "s3a://bucket/lake", "hdfs://name:9000/lake", "file://other/lake"]
)
def test_other_addresses_are_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(InvalidLake, match="mount it"):
        lake_path(text)


def test_a_file_is_no_lake(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(InvalidLake, match="is a file; a lake is a directory"):
        lake_path(tmp_path / "lake")


def test_the_bucket_of_a_topic_never_changes() -> None:
    assert [bucket_of(topic, 8) for topic in ("a", "site/1/temperature", "größe", "$SYS/x")] == [3, 7, 1, 2]
    assert buckets_of(["a", "site/1/temperature"], 8).tolist() == [3, 7]


def test_days_begin_at_midnight_utc_also_before_1970() -> None:
    times = pa.array([0, DAY_US - 1, DAY_US, -1], pa.int64()).view(pa.timestamp("us", "UTC"))
    assert days_of(times).tolist() == [0, 0, 1, -1]
    assert message_partition(20_773, 3) == {"date": "2026-11-16", "bucket": "03"}


def test_odd_values_make_folders_as_spark_names_them() -> None:
    assert partition_folder({"date": "2026-11-16", "bucket": "03"}) == "date=2026-11-16/bucket=03"
    assert partition_folder({"topic": "a/b=c"}) == "topic=a%2Fb%3Dc"
    assert partition_folder({"topic": None}) == f"topic={NO_VALUE}"
