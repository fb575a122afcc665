"""Errors as Spark receives them, and Spark's errors reduced to their root cause."""

import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.errors import InvalidConfig
from penstock.spark.datasource import PenstockDataSource
from penstock.spark.errors import MAX_LENGTH, InvalidOption, is_spark_error, root_cause, sentence_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_error_comes_without_the_way_it_took() -> None:
    source = PenstockDataSource({"startingOffsets": "yesterday"})
    with pytest.raises(InvalidOption) as caught:
        source.schema()
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2  # whoever called, and whoever told
    assert caught.value.__suppress_context__


IN_A_TASK = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "log_part.py", line 13, in read
    raise DataLoss("offsets 1 to 800 left the log")
    ^^^^^^^^^^^^^^^^^
penstock.spark.errors.DataLoss: offsets 1 to 800 left the log
"""
IN_PLANNING = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):
  File "utils.py", line 98, in worker_run
    main(infile, outfile)
penstock.errors.InvalidConfig: the option `filtre` is unknown;
`filter` is meant?
 SQLSTATE: 38000
"""
IN_A_STREAM = """\
[STREAM_FAILED] Query [id = 269e3e79, runId = 8da72cba] terminated with exception: \
[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 258, in main
penstock.errors.InvalidConfig: no hold without a name

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 295, in main
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Current State: INITIALIZING
"""
IN_A_BATCH_OF_A_STREAM = """\
[STREAM_FAILED] Query [id = de7b63f1, runId = d4bb65df] terminated with exception: [FOREACH_BATCH_USER] \
Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "writing.py", line 13, in write
penstock.errors.InvalidConfig: the disk is full
 SQLSTATE: 39000 SQLSTATE: XXKST
"""
OF_SOMEONE_ELSE = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 1, in read
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
"""
OF_THE_JVM = """\
An error occurred while calling o306.save.
: org.apache.spark.SparkClassNotFoundException: \
[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. SQLSTATE: 42K02
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.dataSourceNotFoundError(QueryExecutionErrors.scala:770)
Caused by: java.lang.ClassNotFoundException: delta.DefaultSource
\t... 16 more
"""
OF_A_PLAN = """\
[UNRESOLVED_COLUMN] A column with name `nope` cannot be resolved. SQLSTATE: 42703;
'Project ['nope]
+- Range (0, 1, step=1, splits=Some(2))
"""
OF_A_LOST_TASK = """\
An error occurred while calling o41.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, \
most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): \
java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (IN_A_TASK, "offsets 1 to 800 left the log"),
        (IN_PLANNING, "the option `filtre` is unknown; `filter` is meant?"),
        (IN_A_STREAM, "no hold without a name"),
        (IN_A_BATCH_OF_A_STREAM, "the disk is full"),
        (OF_SOMEONE_ELSE, "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        (OF_THE_JVM, "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta."),
        (OF_A_PLAN, "[UNRESOLVED_COLUMN] A column with name `nope` cannot be resolved."),
        (OF_A_LOST_TASK, "Java heap space"),
        ('Exception in thread "main" org.apache.spark.SparkException: Master must be', "Master must be"),
        ("plain words", "plain words"),
        ("", ""),
    ],
)
def test_one_sentence_is_left(text: str, sentence: str) -> None:
    assert sentence_in(text) == sentence


def test_a_sentence_without_an_end_is_cut() -> None:
    assert len(sentence_in("word " * 10_000)) == MAX_LENGTH + len(" ...")


def test_only_errors_of_spark_are_taken_for_such() -> None:
    assert not is_spark_error(ValueError("x"))
    assert not is_spark_error(InvalidConfig("x"))


def test_an_error_without_words_is_told_by_its_kind() -> None:
    assert root_cause(TimeoutError()) == "TimeoutError"


def test_what_a_worker_raises_is_found_in_what_spark_makes_of_it(spark: "SparkSession") -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise InvalidConfig("the third row\nis bad")

    with pytest.raises(Exception, match="Traceback") as caught:
        spark.range(1).mapInArrow(fail, "id long").collect()
    assert is_spark_error(caught.value)
    assert root_cause(caught.value) == "the third row is bad"
