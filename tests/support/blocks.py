"""Code blocks of the pages, and how to run one against a server on other ports than the page's."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.servers import RunningServer

ROOT = Path(__file__).parents[2]
PENSTOCK = f"{sys.executable} -m penstock"
FENCED = re.compile(
    r"(?:<!-- (?P<marker>[^\n]*?) -->\n)? *```(?P<language>\w+)\n(?P<text>.*?)```",
    re.DOTALL,
)
PRINTED = re.compile(r"\s+It prints:\s+```text\n(.*?)```", re.DOTALL)
SPEAK_MQTT = ("pub", "sub")
ASK_HTTP = ("topics", "clients", "slow", "why", "health", "top")
ANY = "..."
"""What stands for anything in what a page says that is printed; alone in a line, for any lines."""


class Block(NamedTuple):
    """One code block of a page, with the marker before it and what it prints if the page says so."""

    page: str
    marker: str
    language: str
    text: str
    printed: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.strip().splitlines()[0]}"

    def command(self, server: RunningServer) -> list[str]:
        """What to run, talking to this server."""
        return command_for(self.language, self.text, server)


def blocks_of(page: Path) -> Iterator[Block]:
    """The code blocks of a page in their order."""
    content = page.read_text(encoding="utf-8")
    for found in FENCED.finditer(content):
        language, text = found["language"], found["text"]
        below = PRINTED.match(content, found.end())
        if language == "console":
            printed = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("$ "))
        else:
            printed = below[1] if below else ""
        yield Block(str(page.relative_to(ROOT)), found["marker"] or "", language, text, printed)


def command_for(language: str, text: str, server: RunningServer) -> list[str]:
    """A program or a script of the shell as a command, with the ports of this server."""
    port, http_port, grpc_port = server.port, server.port_of("http"), server.port_of("grpc")
    if language == "python":
        elsewhere = text.replace("1883", str(port)).replace("8080", str(http_port))
        elsewhere = elsewhere.replace("5672", str(grpc_port))
        elsewhere = re.sub(r"MqttClient\.connect\((?!\")", f"MqttClient.connect(port={port}, ", elsewhere)
        return [sys.executable, "-c", elsewhere]
    lines = text.splitlines()
    if language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    script = "\n".join(lines).replace("127.0.0.1:8080", f"127.0.0.1:{http_port}")
    script = script.replace("localhost:5672", f"localhost:{grpc_port}")
    script = _with_port(script, SPEAK_MQTT, port)
    return ["sh", "-c", _with_port(script, ASK_HTTP, http_port)]


def _with_port(script: str, commands: tuple[str, ...], port: int) -> str:
    words = rf"(\.venv/bin/)?penstock ({'|'.join(commands)})\b"
    return re.sub(words, rf"{PENSTOCK} \2 --port {port}", script)


def run(command: list[str], **how: Any) -> "subprocess.CompletedProcess[str]":
    """Run something to its end; what it writes, to wherever, comes in one text."""
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=50,
        check=False,
        **how,
    )


def looks_like(said: str, printed: str) -> bool:
    """Whether something was printed as a page says, where `...` stands for anything."""
    said, printed = f"{said.rstrip()}\n", f"{printed.rstrip()}\n"
    parts = []
    for line in said.splitlines(keepends=True):
        if line.strip() == ANY:
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(map(re.escape, line.split(ANY))))
    return re.fullmatch("".join(parts), printed) is not None
