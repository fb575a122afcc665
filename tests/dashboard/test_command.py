"""`penstock dashboard` and `penstock serve --dashboard`: start, errors and shutdown."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from penstock.app.dashboard import DashboardOptions
from penstock.cli import main
from penstock.config import load
from penstock.errors import InvalidConfig
from penstock.extras import how_to_get
from tests.dashboard.browser import RunningDashboard, wait_for
from tests.dashboard.conftest import StartDashboard
from tests.support.servers import StartServer, bare_environment

NOWHERE = "http://127.0.0.1:9"


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code in (1, 2)
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().err).split())


def test_a_port_in_use_is_reported_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = error_of(capsys, "dashboard", "--port", str(taken.getsockname()[1]))
    assert "the port is already in use; set another with --port" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--address", "ftp://here"), "write http://host:8080"),
        (("--address", "http://a:b@here"), "an address contains no user and password"),
        (("--password-file", "secret"), "--password-file needs --user"),
        (("--user", "a:b", "--password-file", "secret"), "must not contain a colon"),
        (("--user", "me", "--password-file", "missing"), "--password-file missing: No such file"),
        (("--ca-file", "secret"), "--ca-file needs an --address with https"),
        (("--address", "https://here", "--ca-file", "secret"), "there are no certificates in it"),
        (("--lake", "missing"), "--lake missing: there is no such folder"),
        (("--host", "203.0.113.7"), "this machine has no such address"),
        (("--host", "no.such.host.invalid"), "unknown host"),
    ],
)
def test_invalid_flags_are_reported_in_one_line(
    words: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "secret").write_text("secret\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert says in error_of(capsys, "dashboard", "--port", "0", *words)


@pytest.mark.parametrize("words", [("dashboard",), ("serve", "--dashboard")])
def test_a_missing_extra_is_reported_with_the_command_that_installs_it(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "streamlit", None)
    assert how_to_get("dashboard") in error_of(capsys, *words)


def test_ctrl_c_stops_it_and_nothing_is_written_to_the_home_folder(tmp_path: Path) -> None:
    running = RunningDashboard(tmp_path, "--address", NOWHERE)
    assert wait_for(lambda: title_of(running.address)) == "Penstock"
    running.stop(signal.SIGINT)
    assert list(running.home.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "stderr", "stdout"]
    assert running.printed.count("\n") == 1


def test_another_host_name_for_this_machine_is_refused(start_dashboard: StartDashboard) -> None:
    running = start_dashboard("--address", NOWHERE)
    wait_for(lambda: title_of(running.address))
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    stream = f"{running.address}/_stcore/stream"
    port = running.address.rpartition(":")[2]
    stranger = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
    response = httpx.get(stream, headers={**upgrade, **stranger}, trust_env=False, timeout=20)
    assert response.status_code == 403


def test_the_dashboard_beside_a_server_shows_it_and_ends_with_it(start_server: StartServer) -> None:
    server = start_server({"http": {"port": 0}}, "--dashboard", "--dashboard-port", "0")
    found = re.search(r"^ +dashboard +(http://\S+)$", server.printed, re.MULTILINE)
    assert found is not None, server.printed
    assert wait_for(lambda: title_of(found[1])) == "Penstock"
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(found[1], trust_env=False, timeout=20)


def test_a_dashboard_that_exits_does_not_stop_its_server(start_server: StartServer) -> None:
    server = start_server({"http": {"port": 0}}, "--dashboard", "--dashboard-port", "0")
    found = re.search(r"^ +dashboard +(http://\S+)$", server.printed, re.MULTILINE)
    assert found is not None, server.printed
    wait_for(lambda: title_of(found[1]))
    [child] = children_of(server.process.pid)
    os.kill(child, signal.SIGTERM)
    wait_for(lambda: "dashboard ended" in server.logged)
    assert re.search("dashboard ended +code=0 ", server.logged), server.logged


def test_the_dashboard_ends_when_its_server_is_killed(start_server: StartServer, tmp_path: Path) -> None:
    from tests.support.servers import start  # noqa: PLC0415 - without the fixture, which checks the exit code

    server = start(tmp_path, {"http": {"port": 0}}, ("--dashboard", "--dashboard-port", "0"), {})
    [child] = wait_for(lambda: children_of(server.process.pid))
    server.process.kill()
    server.process.wait()
    wait_for(lambda: has_ended(child))


def test_a_port_in_use_is_reported_before_the_log_is_opened(tmp_path: Path) -> None:
    ports = [word for door in ("mqtt", "http", "sidecar") for word in (f"--{door}-port", "0")]
    words = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(tmp_path / "data"), *ports]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words += ["--dashboard", "--dashboard-port", str(taken.getsockname()[1])]
        ended = subprocess.run(
            words, env=bare_environment(), capture_output=True, text=True, timeout=50, check=False
        )
    assert "the port is already in use; set another with --dashboard-port" in ended.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("settings", "flags", "says"),
    [
        (
            {"http.port": "off", "http.admin_port": None},
            DashboardOptions(0),
            "needs a port that speaks plain HTTP",
        ),
        ({"access.password_file": "users"}, DashboardOptions(0), "give --dashboard-user"),
        ({}, DashboardOptions(0, user="me"), "give both or neither"),
    ],
)
@pytest.mark.usefixtures("clean_environment")
def test_a_dashboard_that_could_not_show_its_server_is_refused(
    settings: dict[str, object], flags: DashboardOptions, says: str
) -> None:
    given = {key: value for key, value in settings.items() if value is not None}
    with pytest.raises(InvalidConfig, match=says):
        flags.check(load(None, {}, given).settings)


def test_flags_of_a_dashboard_need_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "need --dashboard" in error_of(capsys, "serve", "--dashboard-port", "0")


def title_of(address: str) -> str | None:
    """Title of the page at an address; None while nothing listens."""
    try:
        page = httpx.get(address, trust_env=False, timeout=20).text
    except httpx.TransportError:
        return None
    found = re.search(r"<title>(.*)</title>", page)
    return found[1] if found else None


def has_ended(process: int) -> bool:
    """True if the process has exited, or is a zombie."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def children_of(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(each) for each in text.split() if os.path.exists(f"/proc/{each}")]  # noqa: PTH110
