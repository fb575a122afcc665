"""The examples in README and docs do what the pages say.

A code block runs here if the line before it is a comment that begins with `runs`: by itself, with what it
prints below it; `runs: terminal 2` and `3` as a subscriber and who talks to it; `runs as a test` with pytest.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from textwrap import dedent
from typing import NamedTuple

import pytest

from penstock.config import load
from tests.e2e.servers import RunningServer, StartServer, bare_environment

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
MARKED = re.compile(r"<!-- runs(?P<how>[^\n]*) -->\n```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
PRINTED = re.compile(r"\s+It prints:\s+```text\n(.*?)```", re.DOTALL)
SETTINGS = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
PENSTOCK = f"{sys.executable} -m penstock"
ASKING = ("topics", "clients", "slow", "why", "health")
"""The commands that ask over HTTP."""


class Snippet(NamedTuple):
    """One code block of a page, and what it prints if the page says so."""

    page: str
    how: str
    language: str
    text: str
    printed: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0]}"

    def command(self, server: RunningServer) -> list[str]:
        """What to run, talking to a server on other ports than the page's."""
        port, http_port, grpc_port = server.port, server.port_of("http"), server.port_of("grpc")
        if self.language == "python":
            elsewhere = self.text.replace("1883", str(port)).replace("8080", str(http_port))
            elsewhere = elsewhere.replace("5672", str(grpc_port))
            elsewhere = re.sub(r"MqttClient\.connect\((?!\")", f"MqttClient.connect(port={port}, ", elsewhere)
            return [sys.executable, "-c", elsewhere]
        lines = self.text.splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        script = "\n".join(lines).replace("127.0.0.1:8080", f"127.0.0.1:{http_port}")
        script = script.replace("localhost:5672", f"localhost:{grpc_port}")
        script = re.sub(r"(\.venv/bin/)?penstock (pub|sub)", rf"{PENSTOCK} \2 --port {port}", script)
        asking = "|".join(ASKING)
        script = re.sub(rf"(\.venv/bin/)?penstock ({asking})\b", rf"{PENSTOCK} \2 --port {http_port}", script)
        return ["sh", "-c", script]


def snippets() -> Iterator[Snippet]:
    for page in PAGES:
        content = page.read_text(encoding="utf-8")
        for found in MARKED.finditer(content):
            text = found["text"]
            if found["language"] == "console":
                shown = [line for line in text.splitlines(keepends=True) if not line.startswith("$ ")]
                printed = "".join(shown)
            else:
                below = PRINTED.match(content, found.end())
                printed = below[1] if below else ""
            yield Snippet(str(page.relative_to(ROOT)), found["how"], found["language"], text, printed)


SNIPPETS = list(snippets())
ALONE = [snippet for snippet in SNIPPETS if not snippet.how]
LISTENING = [snippet for snippet in SNIPPETS if snippet.how == ": terminal 2"]
TALKING = [snippet for snippet in SNIPPETS if snippet.how == ": terminal 3"]
TESTS = [snippet for snippet in SNIPPETS if snippet.how == " as a test"]
SETTINGS_FILES = [
    pytest.param(dedent(text), id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, text in enumerate(SETTINGS.findall(page.read_text(encoding="utf-8")))
]


@pytest.fixture(scope="module")
def own_server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server that nobody else publishes to, with everything that a page may use."""
    return start_server({"http": {"port": 0}, "data_dir": str(tmp_path_factory.mktemp("pages") / "data")})


def test_every_marked_block_is_run_in_some_way() -> None:
    assert sorted(map(str, ALONE + LISTENING + TALKING + TESTS)) == sorted(map(str, SNIPPETS))
    assert {snippet.page for snippet in SNIPPETS} >= {"README.md", "docs/tutorial/first-steps.md"}


@pytest.mark.parametrize("snippet", ALONE, ids=str)
def test_a_snippet_prints_what_the_page_says(snippet: Snippet, own_server: RunningServer) -> None:
    missing = [tool for tool in ("curl", "jq") if f"{tool} " in snippet.text and which(tool) is None]
    if missing and snippet.language == "console":
        pytest.skip(f"needs {' and '.join(missing)}")
    done = subprocess.run(
        snippet.command(own_server),
        env=bare_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == snippet.printed


@pytest.mark.parametrize("talking", TALKING, ids=str)
def test_the_first_message_arrives(talking: Snippet, own_server: RunningServer) -> None:
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
def test_an_example_of_a_test_passes(snippet: Snippet, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("text", SETTINGS_FILES)
def test_an_example_of_a_settings_file_is_valid(text: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text(text, encoding="utf-8")
    assert "default" not in {load(file).origins[key] for key in given_keys(text)}


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
