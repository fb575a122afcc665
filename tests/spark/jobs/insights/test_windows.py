"""Messages become cells: in Spark as by plain counting."""

import pytest
from pyspark.sql import SparkSession

from penstock.spark.jobs.insights.windows import CELLS, collect_cells, settled_until
from tests.spark.jobs.insights.samples import LOG_SCHEMA, Sample, busy_minutes, cells_of

EDGES = [
    Sample(at_s=0.0, sequence=2**40, size=0, latency_us=0),
    Sample(at_s=9.999999, sequence=1, size=1, latency_us=1),
    Sample(at_s=10.0, sequence=3, size=2, latency_us=-7_000_000),
    Sample(at_s=20.0, sequence=4, size=1023, latency_us=2**35),
    Sample(at_s=20.0, sequence=5, size=1025, topic="", client_id=""),
]


def test_spark_cuts_messages_into_the_cells_that_plain_counting_finds(spark: SparkSession) -> None:
    samples = [*busy_minutes(60), *EDGES]
    frame = spark.createDataFrame([sample.row() for sample in samples], LOG_SCHEMA)
    cells = collect_cells(frame.repartition(3))
    assert cells.schema == CELLS
    assert sorted(map(repr, cells.to_pylist())) == sorted(map(repr, cells_of(samples).to_pylist()))
    assert collect_cells(frame.limit(0)).num_rows == 0


@pytest.mark.parametrize(
    ("newest_s", "lateness_s", "before_s", "settled_s"),
    [(100, 10, 50, 90), (100, 0, 50, 100), (100, 15, 50, 80), (100, 10, 95, 95), (40, 10, 50, 50)],
)
def test_the_watermark_follows_the_newest_window_and_never_goes_back(
    newest_s: int, lateness_s: int, before_s: int, settled_s: int
) -> None:
    found = settled_until(newest_s * 1_000_000, lateness_s * 1_000_000, before_s * 1_000_000)
    assert found == settled_s * 1_000_000
