"""The chapter of the tutorial about Spark comes true."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.blocks import ROOT, blocks_of
from tests.support.servers import StartServer
from tests.support.stories import Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHAPTER = ROOT / "docs" / "tutorial" / "a-topic-as-a-table.md"


def test_a_topic_is_a_table(spark: "SparkSession", start_server: StartServer, tmp_path: Path) -> None:
    story = Story(start_server, tmp_path)
    for block in blocks_of(CHAPTER):
        story.tell(block)
