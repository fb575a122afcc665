"""The page about backups is followed, command by command, beside a server under load."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from penstock.client import HttpClient, MqttClient, PacketProperties
from tests.deploy.files import HOW_TO, read
from tests.support.data_directories import messages, write
from tests.support.servers import RunningServer, bare_environment, start
from tests.support.waiting import until

PAGE = read(HOW_TO / "back-up-and-restore.md")
STAYS = PacketProperties(session_expiry=3600)
COMPOSE = r"docker compose -f \S+ "
INSIDE = {
    COMPOSE + "exec penstock ": "",
    COMPOSE + "run --rm --entrypoint sh penstock ": "sh ",
    COMPOSE + "run --rm penstock ": "penstock ",
    r"kubectl exec \S+ -- ": "",
}
"""What brings a command into a container, and the program that is run there, if it does not name it."""


def commands_below(title: str) -> str:
    """The first block of commands of a section."""
    found = re.search(rf"^## {title}\n.*?```sh\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def commands_inside(title: str) -> str:
    """What a section has run inside of containers, in its order, without what brings it there."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    blocks = re.findall(r"```sh\n(.*?)```", found[1], re.DOTALL)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return "\n".join(
        program + line[begin.end() :]
        for line in lines
        for way, program in INSIDE.items()
        if (begin := re.match(way, line))
    )


class Machine:
    """A folder that stands for a machine: its paths, and the commands that the page takes for granted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "var" / "lib" / "penstock"
        for name in ("var/lib", "var/backups/penstock", "tmp", "bin"):
            (folder / name).mkdir(parents=True)
        self.server: RunningServer
        self.started = 0
        self._write_command("sudo", 'exec "$@"')
        self._write_command("chown", 'test "$1 $2" = "-R penstock:"')

    def _write_command(self, name: str, script: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def start(self) -> None:
        self.started += 1
        place = self.folder / f"server-{self.started}"
        place.mkdir()
        self.server = start(place, {"http": {"port": 0}, "data_dir": str(self.data)}, (), {})

    def run(self, commands: str) -> str:
        """Run lines of the page, one after another; what is asked of systemd is done by us."""
        printed = ""
        for line in commands.splitlines():
            words = line.removeprefix("sudo ").split()
            if words[0] == "systemctl":
                self._control(*words[1:])
            else:
                printed += self._run_line(line)
        return printed

    def _control(self, verb: str, unit: str) -> None:
        assert unit == "penstock"
        {"start": self.start, "stop": self.server.stop}[verb]()

    def _run_line(self, line: str) -> str:
        here = re.sub(r" (?=/(?:var|tmp)/)", f" {self.folder}", line)
        here = re.sub(r"\bpenstock (log|health)", rf"{sys.executable} -m penstock \1", here)
        if " health" in here:
            here += f" --port {self.server.port_of('http')}"
        environment = {**bare_environment(), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-ec", here], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    made.start()
    yield made
    made.server.stop()


@asynccontextmanager
async def load(port: int, acknowledged: list[int]) -> AsyncIterator[None]:
    """Somebody who publishes all the time, and notes what was acknowledged."""

    async def work() -> None:
        async with MqttClient.connect(port=port, client_id="worker") as client:
            while True:
                first = len(acknowledged)
                numbers = range(first, first + 10)
                await asyncio.gather(*(client.publish("load/a", b"%d" % each, qos=1) for each in numbers))
                acknowledged.extend(numbers)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_nothing_that_was_acknowledged_before_the_backup_is_missing_after_the_restore(
    machine: Machine,
) -> None:
    acknowledged: list[int] = []
    port = machine.server.port
    async with MqttClient.connect(port=port, client_id="clerk", clean_start=False, properties=STAYS) as clerk:
        await clerk.subscribe("orders/#", qos=1)
    async with MqttClient.connect(port=port) as client:
        await client.publish("orders/7", b"two pumps", qos=1)
        await client.publish("state/valve", b"open", qos=1, retain=True)
    early = await asyncio.to_thread(cursor_at_end, machine.server)
    async with load(port, acknowledged):
        await until(lambda: len(acknowledged) > 500, "fewer than 500 messages were acknowledged")
        before = len(acknowledged)
        printed = await asyncio.to_thread(machine.run, commands_below("Back up a running server"))
        after = len(acknowledged)
        await until(
            lambda: len(acknowledged) > after + 100, "fewer than 100 further messages were acknowledged"
        )
    assert re.search(r"copied [\d,]+ messages up to offset \d+, 1 session, 1 retained value: ", printed)
    late = await asyncio.to_thread(cursor_at_end, machine.server)
    async with MqttClient.connect(port=port) as client:
        await client.publish("state/valve", b"shut", qos=1, retain=True)
    assert "all is well" in await asyncio.to_thread(machine.run, commands_below("Check a backup"))
    await asyncio.to_thread(machine.run, commands_below("Restore"))

    port = machine.server.port
    with HttpClient(f"http://127.0.0.1:{machine.server.port_of('http')}") as http:
        restored = await asyncio.to_thread(payloads, http, early)
        assert restored[:before] == [b"%d" % each for each in range(before)]
        assert http.retained_value("state/valve") == b"open"
        with http.read_log(after=late) as reading:
            assert list(reading) is not None
            assert [gap.reason for gap in reading.statement.gaps] == ["lost-uncommitted"]
    async with MqttClient.connect(port=port, client_id="clerk", clean_start=False, properties=STAYS) as clerk:
        assert clerk.session_present
        assert (await anext(aiter(clerk.messages))).payload == b"two pumps"


@pytest.mark.parametrize("title", ["In containers", "On Kubernetes"])
def test_a_volume_that_cannot_be_moved_gets_a_backup_back(tmp_path: Path, title: str) -> None:
    machine = Machine(tmp_path)
    write(machine.data, messages("abc"))
    volume = machine.data.stat().st_ino
    making, *restoring = commands_inside(title).splitlines()
    machine.run(making)
    if title == "On Kubernetes":
        shutil.copytree(tmp_path / "tmp" / "monday", tmp_path / "var" / "backups" / "penstock" / "monday")
    write(machine.data, messages("xyz"))
    assert "copied 3 messages up to offset 3" in machine.run("\n".join(restoring))
    assert machine.data.stat().st_ino == volume
    assert "read 3 messages" in machine.run("penstock log verify /var/lib/penstock")


def cursor_at_end(server: RunningServer) -> str:
    with HttpClient(f"http://127.0.0.1:{server.port_of('http')}") as http:
        return http.position("latest").cursor


def payloads(http: HttpClient, after: str) -> list[bytes]:
    """What was published on the topic of the load after a cursor."""
    with http.read_log(after=after, filters=["load/#"]) as reading:
        found = [payload for batch in reading for payload in batch.column("payload").to_pylist()]
        assert reading.statement.is_complete
    return found
