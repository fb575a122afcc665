"""Pages while the server is down, restarted, or refuses the dashboard."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.access.passwords import hash_password
from tests.browser.places import Place, address_of, publish
from tests.dashboard.browser import Shown
from tests.dashboard.conftest import StartDashboard
from tests.support.fork_server import ForkServer
from tests.support.servers import StartServer

pytestmark = pytest.mark.timeout(300)
PANEL = "[class*=st-key-failure-]"


@pytest.fixture
def place(tmp_path: Path, fork_server: ForkServer | None) -> Iterator[Place]:
    """Server that can restart at the same address."""
    place = Place(tmp_path, {"web": {"explicit_topics": False}}, fork_server)
    yield place
    place.close()


def panel_of(shown: Shown) -> str:
    """Text of the failure panel, once drawn completely."""
    panels = shown.wait_for(
        lambda: [text for text in shown.texts(PANEL) if "every second" in text], "no panel"
    )
    return panels[0]


def test_a_panel_reports_an_unreachable_server_until_it_responds(
    place: Place, start_dashboard: StartDashboard, shown: Shown
) -> None:
    place.server.stop()
    dashboard = start_dashboard("--address", f"http://127.0.0.1:{place.port}")
    shown.open(f"{dashboard.address}/backpressure")
    panel = panel_of(shown)
    assert "No Penstock server responds" in panel
    assert f"GET http://127.0.0.1:{place.port}/metrics" in panel
    assert "Since " in panel and "penstock serve" in panel
    assert shown.texts(".tile") == [], "there is nothing to show yet"
    shown.run("window.isMarked = true")

    place.start()
    publish(place.server, "before", 1, 2, 3)
    shown.wait_for(lambda: shown.tile("published")[0] == "3", "no data")
    shown.wait_for(lambda: not shown.texts(PANEL), "the panel stays")

    place.server.stop()
    assert "The values below are the last ones" in panel_of(shown)
    shown.wait_for(lambda: shown.state.startswith("no data for "), "no age")
    assert shown.tile("published")[0] == "3", "the last metrics stay"

    place.start()
    shown.wait_for(lambda: shown.tile("published")[0] == "0", "still the old metrics")
    shown.wait_for(lambda: shown.state.startswith("restarted "), "no restart")
    shown.wait_for(lambda: not shown.texts(PANEL), "the panel stays")
    publish(place.server, "after", 1)
    shown.wait_for(lambda: shown.tile("published")[0] == "1", "no new metrics")
    assert shown.run("return window.isMarked"), "the page was not reloaded"


def test_a_refused_dashboard_is_told_why_and_recovers(
    start_server: StartServer, start_dashboard: StartDashboard, shown: Shown, tmp_path: Path
) -> None:
    users, rules, secret = tmp_path / "users", tmp_path / "acl", tmp_path / "secret"
    users.write_text(f"viewer:{hash_password(b'another')}\n", encoding="utf-8")
    rules.write_text("user viewer\nsubscribe open/#\n", encoding="utf-8")
    secret.write_text("hunter2hunter2\n", encoding="utf-8")
    access = {"password_file": str(users), "acl_file": str(rules)}
    server = start_server({"http": {"port": 0}, "access": access})
    flags = ("--user", "viewer", "--password-file", str(secret))
    dashboard = start_dashboard("--address", address_of(server), *flags)
    shown.open(f"{dashboard.address}/latency")
    panel = panel_of(shown)
    assert "rejects the user name or password" in panel
    assert "viewer" in panel and "--password-file" in panel

    users.write_text(f"viewer:{hash_password(b'hunter2hunter2')}\n", encoding="utf-8")
    server.process.send_signal(signal.SIGHUP)
    shown.wait_for(lambda: "may not see the server's metrics" in panel_of(shown), "still the password")
    assert "subscribe $SYS/#" in panel_of(shown)

    rules.write_text("user viewer\nsubscribe $SYS/#\n", encoding="utf-8")
    server.process.send_signal(signal.SIGHUP)
    shown.wait_for(lambda: shown.tile("latency-topics")[0] == "0", "no data")
    assert "hunter2hunter2" not in shown.browser.page_source
    command = Path(f"/proc/{dashboard.process.pid}/cmdline").read_text(encoding="utf-8")
    assert "hunter2hunter2" not in command
