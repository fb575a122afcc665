"""The tutorial comes true, block by block; the chapter about Spark is in tests/spark."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.blocks import ROOT, blocks_of
from tests.support.servers import StartServer
from tests.support.stories import Story

pytestmark = pytest.mark.timeout(180)  # a chapter is many processes, one after the other

CHAPTERS = [
    ROOT / "docs" / "tutorial" / f"{name}.md" for name in ("first-steps", "kinds-of-delivery", "why-not")
]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda page: page.stem)
def test_a_chapter_comes_true(chapter: Path, start_server: StartServer, tmp_path: Path) -> None:
    story = Story(start_server, tmp_path)
    try:
        for block in blocks_of(chapter):
            story.tell(block)
    finally:
        story.end()


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda page: page.stem)
def test_no_file_that_a_chapter_names_hides_a_module_of_python(chapter: Path) -> None:
    named = re.findall(r"`(\w+)\.py`", chapter.read_text(encoding="utf-8"))
    assert [name for name in named if name in sys.stdlib_module_names] == []
