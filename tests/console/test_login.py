"""Login and logout, and pages as far as rights go."""

from pathlib import Path

import httpx
import pytest
from argon2 import PasswordHasher
from selenium.webdriver import Keys

from tests.console.screen import Screen
from tests.support.servers import RunningServer, StartServer

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
RULES = """
user ada
publish #
subscribe #
publish $SYS/#
subscribe $SYS/#
user viewer
subscribe plant/#
"""


@pytest.fixture(scope="module")
def guarded(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server with users."""
    folder: Path = tmp_path_factory.mktemp("access")
    users = [f"{user}:{QUICK.hash(f'{user}-secret')}" for user in ("ada", "viewer")]
    (folder / "passwords").write_text("\n".join(users), encoding="utf-8")
    (folder / "acl").write_text(RULES, encoding="utf-8")
    files = {"password_file": str(folder / "passwords"), "acl_file": str(folder / "acl")}
    return start_server({"http": {"port": 0}, "access": files})


def log_in(screen: Screen, user: str, password: str) -> None:
    screen.fill("User", user)
    screen.fill("Password", password).send_keys(Keys.ENTER)


def is_expected(message: str) -> bool:
    """A complaint of the browser about a refused request."""
    return "401" in message or "403" in message


def test_a_user_logs_in_uses_live_and_publish_and_logs_out(screen: Screen, guarded: RunningServer) -> None:
    screen.open(guarded, "live?filter=plant/%23")
    assert screen.texts("h1") == ["Log in"]
    log_in(screen, "ada", "wrong")
    screen.wait(lambda: "User or password is wrong." in screen.text(".problem"), "no refusal")
    log_in(screen, "ada", "ada-secret")
    screen.wait(lambda: screen.texts(".bar .badge") == ["Live"], "the page is not followed after the login")
    assert screen.texts(".user .name") == ["ada"]
    address = f"http://127.0.0.1:{guarded.port_of('http')}/api/v1/publish"
    message = {"topic": "plant/pump", "data": 3}
    httpx.post(address, json=message, auth=("ada", "ada-secret"), trust_env=False).raise_for_status()
    screen.wait(lambda: [row[1] for row in screen.grid()] == ["plant/pump"], "the message does not come")
    screen.go("publish?topic=plant/lamp")
    screen.fill("Payload", "1")
    screen.click("Publish")
    screen.wait(lambda: screen.texts(".receipts > li"), "no receipt")
    screen.click("Log out")
    screen.wait(lambda: screen.texts("h1") == ["Log in"], "still logged in")
    screen.open(guarded)
    assert screen.texts("h1") == ["Log in"]
    assert [each for each in screen.errors() if not is_expected(each)] == []


def test_pages_without_a_right_are_hidden_and_say_why(screen: Screen, guarded: RunningServer) -> None:
    screen.open(guarded)
    log_in(screen, "viewer", "viewer-secret")
    screen.wait(lambda: screen.texts("nav.pages a"), "not logged in")
    assert screen.texts("nav.pages a") == ["Overview", "Topics", "Live", "Retained", "Why"]
    screen.wait(lambda: "subscribe to $SYS/#" in screen.text(), "the missing right is not said")
    screen.go("clients")
    screen.wait(lambda: "Not allowed" in screen.text(".panel.bad"), "it is not said")
    screen.go("live?filter=secret/%23")
    screen.wait(lambda: "Not allowed" in screen.text(".panel.bad"), "it is not said")
    screen.click("Log out")
    screen.wait(lambda: screen.texts("h1") == ["Log in"], "still logged in")
    assert [each for each in screen.errors() if not is_expected(each)] == []
