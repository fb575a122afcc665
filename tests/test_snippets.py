"""The examples in README and docs do what the pages say; the tutorial, which is one story, has its own test.

A code block runs here if the line before it is a comment that begins with `runs`: by itself, with what it
prints below it; `runs: terminal 2` and `3` as a subscriber and who talks to it; `runs as a test` with pytest.
YAML is a settings file of Penstock unless the comment says whose it is, as in `of Prometheus`.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from textwrap import dedent

import pytest

from penstock.config import load
from tests.support.blocks import ROOT, Block, blocks_of, run
from tests.support.servers import RunningServer, StartServer, bare_environment

STORIES = ROOT / "docs" / "tutorial"
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in ROOT.glob("docs/**/*.md") if not page.is_relative_to(STORIES)),
]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SNIPPETS = [block for block in BLOCKS if block.marker.startswith("runs")]
ALONE = [snippet for snippet in SNIPPETS if snippet.marker == "runs"]
LISTENING = [snippet for snippet in SNIPPETS if snippet.marker == "runs: terminal 2"]
TALKING = [snippet for snippet in SNIPPETS if snippet.marker == "runs: terminal 3"]
TESTS = [snippet for snippet in SNIPPETS if snippet.marker == "runs as a test"]
SETTINGS_FILES = [
    block for block in BLOCKS if block.language == "yaml" and not block.marker.startswith("of ")
]


@pytest.fixture(scope="module")
def own_server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server that nobody else publishes to, with everything that a page may use."""
    return start_server({"http": {"port": 0}, "data_dir": str(tmp_path_factory.mktemp("pages") / "data")})


def test_every_marked_block_is_run_in_some_way() -> None:
    assert sorted(map(str, ALONE + LISTENING + TALKING + TESTS)) == sorted(map(str, SNIPPETS))
    assert {snippet.page for snippet in SNIPPETS} >= {"README.md", "docs/how-to/use-from-scripts.md"}


@pytest.mark.parametrize("snippet", ALONE, ids=str)
def test_a_snippet_prints_what_the_page_says(snippet: Block, own_server: RunningServer) -> None:
    missing = [tool for tool in ("curl", "jq") if f"{tool} " in snippet.text and which(tool) is None]
    if missing and snippet.language == "console":
        pytest.skip(f"needs {' and '.join(missing)}")
    done = run(snippet.command(own_server), env=bare_environment())
    assert done.stdout == snippet.printed


@pytest.mark.parametrize("talking", TALKING, ids=str)
def test_the_first_message_arrives(talking: Block, own_server: RunningServer) -> None:
    [listening] = LISTENING
    *shell, script = listening.command(own_server)
    words = [*shell, f"{script} --count 1 --timeout 20"]
    with subprocess.Popen(words, env=bare_environment(), stdout=subprocess.PIPE, text=True) as listener:
        while listener.poll() is None:  # the message may come before its subscriber
            subprocess.run(talking.command(own_server), env=bare_environment(), timeout=30, check=True)
            time.sleep(0.1)
        assert listener.stdout is not None
        assert listener.stdout.read() == "hello/world first light\n"


@pytest.mark.parametrize("snippet", TESTS, ids=str)
def test_an_example_of_a_test_passes(snippet: Block, tmp_path: Path) -> None:
    file = tmp_path / "test_example.py"
    file.write_text(snippet.text, encoding="utf-8")
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*words, *(word for option in options for word in ("-o", option)), str(file)],
        env=bare_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("block", SETTINGS_FILES, ids=str)
def test_an_example_of_a_settings_file_is_valid(block: Block, tmp_path: Path) -> None:
    text = dedent(block.text)
    file = tmp_path / "penstock.yaml"
    file.write_text(text, encoding="utf-8")
    origins = load(file).origins
    assert "default" not in {origins[key] for key in given_keys(text)}


def given_keys(text: str) -> Iterator[str]:
    """The dotted keys of a file with one level of sections, read without a parser."""
    section = ""
    for line in text.splitlines():
        if found := re.match(r"( {2})?(\w+):( .+)?$", line):
            indent, word, value = found.groups()
            if not indent:
                section = word
            if value or word == "topics":
                yield f"{section}.{word}" if indent else word
