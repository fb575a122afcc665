"""A server that goes, comes back, or does not let the dashboard in: what the pages say then."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.passwords import hash_password
from tests.browser.places import Place, address_of, publish
from tests.dashboard.conftest import StartDashboard
from tests.dashboard.showing import Shown
from tests.e2e.servers import StartServer

pytestmark = pytest.mark.timeout(120)
PANEL = "[class*=st-key-trouble-]"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A server that can go and come back at the same address."""
    place = Place(tmp_path, {"web": {"explicit_topics": False}})
    yield place
    place.close()


def panel_of(shown: Shown) -> str:
    """What the panel says, once it has been drawn to its end."""
    said = shown.wait_for(lambda: [text for text in shown.texts(PANEL) if "every second" in text], "no panel")
    return said[0]


def test_a_panel_says_that_the_server_is_away_and_goes_when_it_is_there(
    place: Place, start_dashboard: StartDashboard, shown: Shown
) -> None:
    place.server.stop()
    dashboard = start_dashboard("--address", f"http://127.0.0.1:{place.port}")
    shown.open(dashboard.address)
    panel = panel_of(shown)
    assert "No Penstock server answers" in panel
    assert f"GET http://127.0.0.1:{place.port}/metrics" in panel
    assert "Since " in panel and "penstock serve" in panel
    assert shown.texts(".tile") == [], "there is nothing to show yet"
    shown.run("window.isMarked = true")

    place.start()
    publish(place.server, "before", 1, 2, 3)
    shown.wait_for(lambda: shown.tile("published")[1] == "3 in all", "no figures")
    shown.wait_for(lambda: not shown.texts(PANEL), "the panel stays")

    place.server.stop()
    assert "The figures below are the last ones" in panel_of(shown)
    shown.wait_for(lambda: shown.texts(".server .state")[0].startswith("no figures for "), "no age")
    assert shown.tile("published")[1] == "3 in all", "the last figures stay"

    place.start()
    shown.wait_for(lambda: shown.tile("published")[1] == "0 in all", "still the old figures")
    shown.wait_for(lambda: shown.texts(".server .state")[0].startswith("started anew "), "no restart")
    shown.wait_for(lambda: not shown.texts(PANEL), "the panel stays")
    publish(place.server, "after", 1)
    shown.wait_for(lambda: shown.tile("published")[1] == "1 in all", "no new figures")
    shown.wait_for(lambda: shown.tile("published")[0] in ("0", "0.2", "0.3", "0.5", "1.0"), "a wrong rate")
    assert shown.run("return window.isMarked"), "the page was not loaded anew"


def test_who_may_not_look_is_told_why_and_let_in_later(
    start_server: StartServer, start_dashboard: StartDashboard, shown: Shown, tmp_path: Path
) -> None:
    users, rules, secret = tmp_path / "users", tmp_path / "acl", tmp_path / "secret"
    users.write_text(f"viewer:{hash_password('another')}\n", encoding="utf-8")
    rules.write_text("user viewer\nsubscribe open/#\n", encoding="utf-8")
    secret.write_text("hunter2hunter2\n", encoding="utf-8")
    access = {"password_file": str(users), "acl_file": str(rules)}
    server = start_server({"http": {"port": 0}, "access": access})
    flags = ("--user", "viewer", "--password-file", str(secret))
    dashboard = start_dashboard("--address", address_of(server), *flags)
    shown.open(f"{dashboard.address}/latency")
    panel = panel_of(shown)
    assert "does not accept the name and password" in panel
    assert "viewer" in panel and "--password-file" in panel

    users.write_text(f"viewer:{hash_password('hunter2hunter2')}\n", encoding="utf-8")
    server.process.send_signal(signal.SIGHUP)
    shown.wait_for(lambda: "may not see the server's figures" in panel_of(shown), "still the password")
    assert "subscribe $SYS/#" in panel_of(shown)

    rules.write_text("user viewer\nsubscribe $SYS/#\n", encoding="utf-8")
    server.process.send_signal(signal.SIGHUP)
    shown.wait_for(lambda: shown.tile("latency-topics")[0] == "0", "no figures")
    assert "hunter2hunter2" not in shown.browser.page_source
    command = Path(f"/proc/{dashboard.process.pid}/cmdline").read_text(encoding="utf-8")
    assert "hunter2hunter2" not in command
