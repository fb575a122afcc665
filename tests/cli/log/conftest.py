"""How a command is run, and a log to run it on."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from penstock.cli import main
from tests.support.data_directories import messages, seal, settle, write


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its lines, if they are JSON."""
        return [msgspec.json.decode(line) for line in self.out.splitlines()]

    @property
    def statement(self) -> dict[str, Any]:
        """The statement, if it is JSON."""
        return dict(msgspec.json.decode(self.err))

    @property
    def offsets(self) -> list[int]:
        """The offsets of the messages it wrote, as text or as JSON."""
        return (
            [row["offset"] for row in self.rows]
            if self.out.startswith("{")
            else [int(line.split()[0]) for line in self.out.splitlines()]
        )


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `penstock log` with some words, in this process."""

    def run_words(*words: object) -> Ended:
        capsys.readouterr()  # what a server said before
        with pytest.raises(SystemExit) as ended:
            main(["log", *map(str, words)])
        written = capsys.readouterr()
        return Ended(int(ended.value.code or 0), written.out, written.err)

    return run_words


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a sealed batch (offsets 1 to 6), two frames (7 to 9), and two epochs."""
    path = tmp_path_factory.mktemp("original") / "data"
    write(path, messages("abc"), messages("aab"))
    seal(path)
    write(path, messages("ca"), messages("b"))
    return path


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """The same log, to be treated badly."""
    path = tmp_path / "data"
    shutil.copytree(original, path)
    return path


@pytest.fixture
def settled(data: Path) -> Path:
    """The same log, with everything in tables."""
    settle(data)
    return data
