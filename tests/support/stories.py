"""A chapter of the tutorial, told to a server block by block, as its reader would.

The comment before a block says what becomes of it:

- `serves`: it starts the server of the chapter. `prepares`: it is about the reader's machine, and not run.
- `runs`: it is run to its end, and prints what stands there. It ends with 0, unless `, and ends with 1`.
- `continues`: Python that is typed into the same interpreter as the one before.
- `starts: terminal 2`: it runs on in that terminal until the end, or until a block `pauses` it.
- `prints: terminal 2`: what it prints meanwhile. With `or` in between it may be either; `, something like`
  says that its numbers may be others.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from shlex import split
from typing import Any

from penstock.client import HttpClient
from tests.support.blocks import Block, command_for, looks_like, run
from tests.support.servers import RunningServer, StartServer, bare_environment

PATIENCE_S = 40.0
OTHER_NUMBERS = ", something like"


class Terminal:
    """A command that goes on while others run."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        self._file = folder / name.replace(" ", "-")
        self._read = 0
        with self._file.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=bare_environment(), stdout=output, stderr=output, start_new_session=True
            )

    @property
    def news(self) -> str:
        """What it has printed since somebody looked."""
        return self._file.read_text(encoding="utf-8")[self._read :]

    def has_printed(self, said: str, *, other_numbers: bool) -> bool:
        """Whether its news begin with this; if so, they are news no more."""
        news = self.news.splitlines(keepends=True)
        begin = "".join(news[: len(said.splitlines())])
        if other_numbers:
            said, begin = re.sub(r"\d+", "0", said), re.sub(r"\d+", "0", begin)
        if begin.endswith("\n") and looks_like(said, begin):
            self._read += len("".join(news[: len(said.splitlines())]))
            return True
        return False

    def signal(self, number: signal.Signals) -> None:
        """Do to it what a key in its terminal does."""
        os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Close the terminal, with everything in it."""
        for number in (signal.SIGCONT, signal.SIGKILL):
            self.signal(number)
        self._process.wait()


class Story:
    """One chapter, and what has happened in it so far."""

    def __init__(self, start_server: StartServer, folder: Path) -> None:
        self._start_server = start_server
        self._folder = folder
        self._server: RunningServer | None = None
        self._terminals: dict[str, Terminal] = {}
        self._names: dict[str, Any] = {}

    @property
    def server(self) -> RunningServer:
        """The server of the chapter."""
        assert self._server is not None, "no block has started a server"
        return self._server

    def tell(self, block: Block) -> None:
        """Do what a block asks for, and see that what it says comes true."""
        kind, _, rest = block.marker.partition(": ")
        kind = kind.partition(",")[0]
        ways: dict[str, Callable[[Block, str], None]] = {
            "serves": self._serve,
            "prepares": lambda block, rest: None,
            "runs": self._run,
            "continues": self._continue,
            "starts": self._start,
            "pauses": self._pause,
            "prints": self._expect,
            "": self._show,
        }
        ways[kind](block, rest)

    def end(self) -> None:
        """Close all terminals."""
        for terminal in self._terminals.values():
            terminal.end()

    def _serve(self, block: Block, _: str) -> None:
        words = split(block.text.removeprefix("$ "))
        flags = [word for word in words[2:] if word not in ("--data-dir", "data")]
        settings = {"http": {"port": 0}, "data_dir": str(self._folder / "data")}
        self._server = self._start_server(settings, *flags)

    def _run(self, block: Block, _: str) -> None:
        done = run(block.command(self.server), env=bare_environment(), cwd=self._folder)
        found = re.search(r"ends with (\d+)", block.marker)
        assert looks_like(block.printed, done.stdout), f"{block}\n{done.stdout}"
        assert done.returncode == (int(found[1]) if found else 0), done.stdout

    def _continue(self, block: Block, _: str) -> None:
        program = command_for(block.language, block.text, self.server)[-1]
        with redirect_stdout(StringIO()) as output:
            exec(program, self._names)  # noqa: S102 - runs the code of a page
        assert looks_like(block.printed, output.getvalue()), f"{block}\n{output.getvalue()}"

    def _start(self, block: Block, name: str) -> None:
        before = self._subscribers()
        self._terminals[name] = Terminal(block.command(self.server), self._folder, name)
        wait_for(lambda: self._subscribers() > before, lambda: f"{block} does not subscribe")

    def _pause(self, block: Block, name: str) -> None:
        self._terminals[name].signal(signal.SIGSTOP)

    def _expect(self, block: Block, who: str) -> None:
        names = who.removesuffix(OTHER_NUMBERS).split(" or ")
        terminals = [self._terminals[name] for name in names]
        other_numbers = who.endswith(OTHER_NUMBERS)

        def is_printed() -> bool:
            return any(each.has_printed(block.text, other_numbers=other_numbers) for each in terminals)

        wait_for(is_printed, lambda: f"{block} is not printed, but {[each.news for each in terminals]}")

    def _show(self, block: Block, _: str) -> None:
        """What a server says when it starts, or what the block before prints, which was compared there."""
        assert block.language == "text", f"{block} has no marker"
        for name in set(re.findall(r"^  (\w+) ", block.text, re.MULTILINE)):
            assert re.search(rf"^  {name} ", self.server.printed, re.MULTILINE), name

    def _subscribers(self) -> int:
        with HttpClient(f"http://127.0.0.1:{self.server.port_of('http')}") as client:
            return int(client.metrics()["global"]["active_subscribers"])


def wait_for(condition: Callable[[], bool], complaint: Callable[[], str]) -> None:
    """Look again and again; the complaint says what went wrong in the end."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)
