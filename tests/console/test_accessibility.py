"""Names, landmarks, keyboard, contrast and narrow windows, on every page and in both themes."""

from pathlib import Path

import httpx
import pytest
from selenium.webdriver import Keys

from tests.console.screen import NARROW, WIDE, Screen
from tests.support.servers import RunningServer

PAGES = (
    *("overview", "topics", "topics/access/a", "live", "publish", "retained", "clients", "slow"),
    *("why?topic=access/a&sequence=1", "log", "settings"),
)
LEAST_CONTRAST = 4.5
IS_FILLED = """
  const wanted = "tbody tr, .space .row, .nothing, .page-publish form, .page-live .figure:not(:empty)";
  return [...document.querySelectorAll(wanted)].some((each) => each.checkVisibility());
"""

COMPLAINTS = Path(__file__).with_name("complaints.js").read_text(encoding="utf-8")
CONTRASTS = Path(__file__).with_name("contrasts.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def content(http: httpx.Client) -> None:
    """Something to see on every page."""
    messages = [{"topic": "access/a", "data": {"n": number}, "retain": True} for number in range(3)]
    http.post("/api/v1/publish", json=messages).raise_for_status()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_have_names_landmarks_and_contrast_in_both_themes_and_fit_a_phone(
    screen: Screen, console_server: RunningServer, theme: str
) -> None:
    screen.open(console_server, "overview", WIDE if theme == "light" else NARROW)
    screen.choose("Theme", theme)
    for page in PAGES:
        screen.go(page)
        screen.wait(lambda: screen.run(IS_FILLED), f"{page} stays empty")
        assert screen.run(COMPLAINTS) == [], page
        assert screen.run(CONTRASTS, LEAST_CONTRAST) == {}, page
        assert screen.run("return document.documentElement.scrollWidth <= innerWidth"), f"{page} is too wide"
    scheme = screen.run("return getComputedStyle(document.documentElement).colorScheme")
    assert scheme == theme
    screen.choose("Theme", "auto")


def test_everything_is_reached_by_keyboard_alone(screen: Screen, console_server: RunningServer) -> None:
    screen.open(console_server)
    screen.wait(lambda: screen.texts("nav.pages a"), "no navigation")
    screen.press(Keys.TAB)
    assert screen.focused == "Skip to content"
    screen.press(Keys.ENTER)
    assert screen.run("return document.activeElement.id") == "main"
    screen.run("document.querySelector('nav.pages a[data-page=retained]').focus()")
    screen.press(Keys.ENTER)
    screen.wait(lambda: screen.focused == "Retained", "the focus does not follow to the heading")
    screen.wait(lambda: screen.rows("Retained values"), "no values")

    def tab_to(name: str) -> None:
        for _ in range(80):
            if screen.focused == name:
                return
            screen.press(Keys.TAB)
        raise AssertionError(f"no way to {name}")

    tab_to("Delete access/a")
    screen.press(Keys.ENTER)
    screen.wait(lambda: screen.focused == "Cancel", "the dialog does not take the focus")
    screen.press(Keys.ESCAPE)
    assert screen.focused == "Delete access/a"
    screen.go("overview")
    tab_to("Explain dropped")
    screen.press(Keys.ENTER)
    screen.wait(lambda: "Deliveries lost" in screen.text(".note"), "no explanation")
    screen.press(Keys.ESCAPE)
    screen.wait(lambda: not screen.texts(".note"), "the explanation stays")


def test_the_menu_of_a_narrow_window_opens_and_closes(screen: Screen, console_server: RunningServer) -> None:
    screen.open(console_server, "overview", NARROW)
    assert screen.texts("nav.pages a") == []
    screen.click("Menu")
    screen.wait(lambda: "Settings" in screen.texts("nav.pages a"), "the menu does not open")
    screen.click("Settings")
    screen.wait(
        lambda: screen.texts("h1") == ["Settings"] and not screen.texts("nav.pages a"), "it stays open"
    )
