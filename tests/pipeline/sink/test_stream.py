"""Streaming queries that write to topics: each batch once, whatever is killed and begun again."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from penstock.pipeline.sink import stream_writer
from penstock.pipeline.sink.staging import names_under
from penstock.pipeline.sink.stream import BATCH, QUERY
from tests.pipeline.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def published(server: LogServer, topic: str) -> list[int]:
    with server.client() as client, client.read_log(filters=[topic], columns=["payload"]) as log:
        return [int(payload) for payload in log.table().column("payload").to_pylist()]


class Story:
    """A folder of files with numbers, and a query that publishes them, a file in each batch."""

    def __init__(self, spark: "SparkSession", folder: Path, server: LogServer, topic: str) -> None:
        self._spark, self.folder, self._server, self.topic = spark, folder, server, topic
        (folder / "in").mkdir()
        self._files = 0

    def add(self, *numbers: int) -> None:
        """One more file."""
        draft = self.folder / "draft"
        draft.write_text("".join(f"{number}\n" for number in numbers), encoding="utf-8")
        self._files += 1
        draft.rename(self.folder / "in" / f"{self._files:03}.txt")

    def run(self, partitions: int = 2) -> None:
        """Publish what is there, and end."""
        frame = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder / "in"))
        query: StreamingQuery = (
            frame.selectExpr("value as payload")
            .repartition(partitions)
            .writeStream.format("penstock")
            .options(address=self._server.address, topic=self.topic)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """Make Spark believe that it was killed before it noted that a batch was done."""
        for file in (self.folder / "checkpoint" / "commits").glob(f"*{batch}*"):
            file.unlink()

    @property
    def stages(self) -> dict[str, int]:
        """How many rows each stage of the query has; other tests use the same server."""
        query = json.loads((self.folder / "checkpoint" / "metadata").read_text(encoding="utf-8"))["id"]
        with self._server.client() as client:
            return {id: client.staged(id)["rows"] for id in client.stages(names_under(query))}

    @property
    def published(self) -> list[int]:
        """What is in the log, by number."""
        return sorted(published(self._server, self.topic))


@pytest.fixture
def story(spark: "SparkSession", log_server: LogServer, tmp_path: Path, name: str) -> Story:
    return Story(spark, tmp_path, log_server, name)


def test_a_batch_that_spark_does_again_is_published_once(story: Story) -> None:
    story.add(1, 2, 3, 4)
    story.add(5, 6, 7)
    story.run()
    assert story.published == [1, 2, 3, 4, 5, 6, 7]
    story.forget_commit(1)
    story.add(8)
    story.run(partitions=3)
    assert story.published == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not story.stages


@pytest.mark.parametrize("known", [{}, {QUERY: "q"}, {BATCH: "7"}, {QUERY: "", BATCH: "7"}])
def test_rows_of_a_batch_that_nobody_can_name_are_not_written(
    known: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Task:
        @staticmethod
        def get() -> object:
            return Task()

        def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's
            return known.get(name)

    monkeypatch.setattr("penstock.pipeline.sink.stream.TaskContext", Task)
    writer = stream_writer({"topic": "a"}, StructType().add("payload", "string"))
    with pytest.raises(RuntimeError, match="which query and which batch"):
        writer.write(iter([]))


KILLED = dedent(
    """
    import sys, time
    from pathlib import Path
    from penstock.pipeline.session import start_session
    from penstock.pipeline.sink import StreamWriter, stream_writer
    from pyspark.sql.datasource import DataSource

    folder, address, topic, is_held = sys.argv[1:]


    class Watched(StreamWriter):
        def commit(self, messages, batchId):
            (Path(folder) / "staged").touch()
            if is_held == "True":
                time.sleep(600)
            super().commit(messages, batchId)


    class Source(DataSource):
        @classmethod
        def name(cls):
            return "watched"

        def streamWriter(self, schema, overwrite):
            return Watched(stream_writer(self.options, schema)._options)


    confs = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    spark = start_session("killed", "local[2]", confs)
    spark.dataSource.register(Source)
    spark.readStream.option("maxFilesPerTrigger", 1).text(folder + "/in").selectExpr(
        "value as payload"
    ).repartition(2).writeStream.format("watched").options(address=address, topic=topic).option(
        "checkpointLocation", folder + "/checkpoint"
    ).start().awaitTermination()
    """
)
"""A query that says when it is about to commit its first batch, and then does so or waits for ever."""


def kill_query(story: Story, server: LogServer, *, is_held: bool) -> None:
    """Start the query in a process of its own, and kill it when its first batch is staged, or soon after."""
    script, marker = story.folder / "killed.py", story.folder / "staged"
    script.write_text(KILLED, encoding="utf-8")
    marker.unlink(missing_ok=True)
    arguments = [str(story.folder), server.address, story.topic, str(is_held)]
    with (story.folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(script), *arguments], start_new_session=True, stdout=output, stderr=output
        )
        try:
            while not marker.exists():
                assert _is_alive(process, 0.1), (story.folder / "output").read_text(errors="replace")
            if not is_held:
                assert _is_alive(process, random.uniform(0, 2))
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # Spark's JVM and its workers too
            process.wait()


def _is_alive(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


@pytest.mark.timeout(1_200)
def test_a_query_that_is_killed_between_stage_and_commit_loses_and_repeats_nothing(
    story: Story, log_server: LogServer, scale: int
) -> None:
    """One kill at that very point; in a soak nine more, shortly behind it."""
    story.add(1, 2, 3, 4)
    story.add(5, 6, 7, 8)
    kill_query(story, log_server, is_held=True)
    assert sum(story.stages.values()) == 4
    assert story.published == []
    for number in range(scale - 1):
        story.add(100 + number, 200 + number)
        story.add(300 + number)
        kill_query(story, log_server, is_held=False)
    story.run()
    later = [base + number for base in (100, 200, 300) for number in range(scale - 1)]
    assert story.published == [1, 2, 3, 4, 5, 6, 7, 8, *later]
    assert not story.stages, "what the killed one has left was cleared away"
