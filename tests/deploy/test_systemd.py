"""The unit: systemd understands it, and the server does what it relies on."""

import configparser
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from penstock.client import HttpClient
from penstock.config import load
from penstock.testing import server
from tests.deploy.commands import check_words
from tests.deploy.files import DEPLOY, HOW_TO, read
from tests.support.servers import bare_environment

UNIT = DEPLOY / "systemd" / "penstock.service"
PATIENCE_S = 30.0
SYSTEM_CALL = re.compile(r"^(?:\d+ +)?(\w+)\(", re.MULTILINE)


def section(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT, encoding="utf-8")
    return parser[name]


UNITS = sorted(path for path in UNIT.parent.iterdir() if path.suffix in {".service", ".timer"})


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_no_mistake_in_a_unit(unit: Path, tmp_path: Path) -> None:
    for each in UNITS:  # a timer wants its service
        text = read(each).replace("/opt/penstock/bin/penstock", sys.executable)
        (tmp_path / each.name).write_text(text, encoding="utf-8")
    copy = tmp_path / unit.name
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_leaves_little_to_whoever_gets_in() -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(UNIT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout  # the exposure is above 2.0 of 10


def test_the_nightly_backup_is_made_and_old_ones_of_its_own_go(tmp_path: Path) -> None:
    text = read(UNIT.with_name("penstock-backup.service"))
    backups = tmp_path / "backups"
    old, recent, by_hand = backups / "2026-01-31-030000", backups / "2026-02-15-030000", backups / "monday"
    for path in (old, recent, by_hand):
        path.mkdir(parents=True)
    for path in (old, by_hand):
        age(path, days=16)
    with server(data_dir=tmp_path / "data") as running:
        with running.http() as client:
            client.publish("a", "1")
        for command in re.findall(r"^ExecStart(?:Post)?=(.*)$", text, re.MULTILINE):
            here = command.replace("/opt/penstock/bin/penstock", f"{sys.executable} -m penstock")
            here = here.replace("/var/lib/penstock", str(tmp_path / "data")).replace("%%", "%")
            environment = {**bare_environment(), "TARGET": str(backups)}
            subprocess.run(["sh", "-ec", here], env=environment, timeout=60, check=True)
    left = set(backups.iterdir())
    assert old not in left and {recent, by_hand} < left
    [made] = left - {recent, by_hand}
    assert (made / "penstock.json").is_file()


def age(path: Path, days: int) -> None:
    then = time.time() - days * 86_400
    os.utime(path, (then, then))


def test_the_user_of_the_unit_is_the_one_that_is_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    words = ["systemd-sysusers", f"--root={tmp_path}", str(DEPLOY / "systemd" / "penstock.sysusers")]
    subprocess.run(words, capture_output=True, timeout=60, check=True)
    assert read(tmp_path / "etc" / "passwd").startswith(f"{section('Service')['User']}:")


def test_the_page_makes_the_place_that_backups_go_to() -> None:
    page = read(HOW_TO / "run-in-production.md")
    assert "cp deploy/systemd/penstock.tmpfiles /etc/tmpfiles.d/penstock.conf\n" in page
    assert "systemd-tmpfiles --create penstock.conf\n" in page
    [_, made] = read(DEPLOY / "systemd" / "penstock.tmpfiles").splitlines()
    assert made.split()[1] in read(DEPLOY / "systemd" / "penstock-backup.service")


def test_the_command_is_ours_and_there_is_time_to_drain(tmp_path: Path) -> None:
    service = section("Service")
    program, *words = service["ExecStart"].split()
    assert Path(program).name == "penstock"
    check_words(words)
    page = read(HOW_TO / "run-in-production.md")
    [example] = re.findall(r"```yaml\n(# /etc/penstock/penstock.yaml\n.*?)```", page, re.DOTALL)
    (tmp_path / "penstock.yaml").write_text(example, encoding="utf-8")
    settings = load(tmp_path / "penstock.yaml").settings
    assert int(service["TimeoutStopSec"]) > settings.shutdown_timeout_s
    assert settings.mqtt.max_connections <= int(service["LimitNOFILE"]) - 500
    assert str(settings.data_dir) == f"/var/lib/{service['StateDirectory']}"


class Supervisor:
    """What systemd is to a service: it gets its notices, and sends it signals."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.settimeout(PATIENCE_S)
        self._folder = folder
        self.environment = {
            **bare_environment(),
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": "600000",
        }

    def start(self, *before: str) -> "subprocess.Popen[bytes]":
        words = [*before, sys.executable, "-m", "penstock", "serve", "--config", str(self._folder / "file")]
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen(words, env=self.environment, stdout=log, stderr=log)

    def write(self, **settings: object) -> None:
        ports = {"mqtt": {"port": 0}, "http": {"port": 0}, "sidecar": {"port": 0}}
        content = yaml.safe_dump({**ports, "data_dir": str(self._folder / "data"), **settings})
        (self._folder / "file").write_text(content, encoding="utf-8")

    def wait_for(self, notice: str) -> list[str]:
        """All notices up to one with this line."""
        seen: list[str] = []
        while notice not in seen:
            try:
                seen += self._socket.recv(4096).decode().splitlines()
            except TimeoutError:
                pytest.fail(f"no {notice}, but {seen}; {self.logged}")
        return seen

    @property
    def logged(self) -> str:
        return read(self._folder / "log")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path)
    yield made
    made.close()


def test_the_server_tells_systemd_that_it_is_ready_alive_reloading_and_stopping(
    supervisor: Supervisor,
) -> None:
    supervisor.write()
    process = supervisor.start()
    try:
        supervisor.wait_for("READY=1")
        assert re.search(r" http://\S+:\d+", supervisor.logged), "it listens by then"
        supervisor.wait_for("WATCHDOG=1")
        supervisor.write(logging={"level": "warning"})
        process.send_signal(signal.SIGHUP)  # ExecReload=
        seen = supervisor.wait_for("RELOADING=1")
        assert "STOPPING=1" not in seen + supervisor.wait_for("READY=1")
        process.send_signal(signal.SIGTERM)
        supervisor.wait_for("STOPPING=1")
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


def test_a_busy_server_makes_no_system_call_that_the_unit_forbids(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    supervisor.write()
    process = supervisor.start("strace", "-f", "-qq", "-e", "signal=none", "-o", str(tmp_path / "calls"))
    try:
        supervisor.wait_for("READY=1")
        found = re.search(r"http://127\.0\.0\.1:(\d+)", supervisor.logged)
        assert found is not None
        with HttpClient(f"http://127.0.0.1:{found[1]}", timeout=PATIENCE_S) as client:
            for _ in range(11):  # enough to be sealed, which a child process does
                client.publish_many([{"topic": "load/a", "data": number} for number in range(1_000)])
            assert client.messages("load/a", limit=10).messages
            client.metrics()
        assert httpx.get(f"http://127.0.0.1:{found[1]}/metrics/prometheus", timeout=PATIENCE_S).is_success
        os.kill(int(children_of(process.pid)), signal.SIGTERM)
        supervisor.wait_for("STOPPING=1")
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    made = set(SYSTEM_CALL.findall(read(tmp_path / "calls")))
    assert {"epoll_wait", "fdatasync"} <= made or {"epoll_pwait", "fdatasync"} <= made, made
    assert made <= allowed_calls()


def children_of(parent: int) -> str:
    [child] = read(Path(f"/proc/{parent}/task/{parent}/children")).split()
    return child


def allowed_calls() -> set[str]:
    """Everything in the set that the unit names, with the sets in it."""
    words = ["systemd-analyze", "syscall-filter"]
    text = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    sets = {
        found[1]: set(re.findall(r"^ +(@?[\w-]+)$", found[2], re.MULTILINE))
        for found in re.finditer(r"^(@[\w-]+)\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    }
    wanted, allowed = [section("Service")["SystemCallFilter"]], set()
    while wanted:
        name = wanted.pop()
        if name.startswith("@"):
            wanted += sets[name]
        else:
            allowed.add(name)
    return allowed
