"""The topic tree with more topics than a page could hold as elements."""

import httpx
from selenium.webdriver import Keys

from tests.console.screen import Screen
from tests.support.servers import RunningServer

TOPICS = 10_000
ELEMENTS = 120
"""More rows than a window has room for, and far fewer than there are topics."""


def publish_many(http: httpx.Client, groups: int) -> None:
    for group in range(groups):
        batch = [{"topic": f"wide/{group}/{number:05}", "data": number} for number in range(TOPICS)]
        http.post("/api/v1/publish", json=batch).raise_for_status()


def test_the_tree_opens_by_keys_scrolls_to_its_end_and_finds_one_of_many_topics(
    screen: Screen, console_server: RunningServer, http: httpx.Client, scale: int
) -> None:
    publish_many(http, scale)
    http.post("/api/v1/publish", json={"topic": "/odd//level", "data": "deep"}).raise_for_status()
    screen.open(console_server, "topics")
    names = screen.wait(lambda: [row[0] for row in screen.grid()], "no topics")
    assert "(empty level)" in names

    def open_focused(child: str) -> list[str]:
        screen.press(Keys.ARROW_RIGHT)
        return screen.wait(lambda: next((row for row in screen.grid() if row[0] == child), None), "not open")

    screen.find("input", "Search topics").send_keys(Keys.ARROW_DOWN)
    screen.press(*[Keys.ARROW_DOWN] * names.index("wide"))
    assert open_focused("0")[5] == f"{TOPICS:,}"
    screen.press(*[Keys.ARROW_DOWN] * scale)
    first = open_focused("00000")
    assert (first[1], first[4]) == ("0", "1")
    last = f"{TOPICS - 1:05}"

    def is_at_end() -> bool:
        screen.press(Keys.END)
        return any(row[0] == last for row in screen.grid())

    screen.wait(is_at_end, "the end is not reached")
    assert len(screen.grid()) < ELEMENTS
    screen.press(Keys.ENTER)
    screen.wait(lambda: screen.texts("h1") == [f"wide/{scale - 1}/{last}"], "the topic is not shown")


def test_a_search_shows_the_topics_of_a_text_or_of_a_filter(
    screen: Screen, console_server: RunningServer, http: httpx.Client
) -> None:
    topics = ["find/red/one", "find/blue/one", "find/blue/two"]
    http.post("/api/v1/publish", json=[{"topic": each, "data": 1} for each in topics]).raise_for_status()
    screen.open(console_server, "topics")
    for wanted, found in (("d/blue", topics[1:]), ("find/+/one", topics[:2])):
        screen.fill("Search topics", wanted)
        screen.wait(lambda found=found: sorted(row[0] for row in screen.grid()) == sorted(found), "not found")  # type: ignore[misc]
    screen.click("find/red/one")
    screen.wait(lambda: screen.rows("Messages of find/red/one"), "the topic is not shown")


def test_a_level_is_opened_by_a_click_and_shows_new_topics_as_they_come(
    screen: Screen, console_server: RunningServer, http: httpx.Client
) -> None:
    http.post("/api/v1/publish", json={"topic": "grow/b", "data": {"n": 1}}).raise_for_status()
    screen.open(console_server, "topics?search=")
    screen.wait(lambda: any(row[0] == "grow" for row in screen.grid()), "no level")
    screen.run(
        "[...document.querySelectorAll('.row')].find((row) => row.textContent.startsWith('grow')).click()"
    )
    screen.wait(lambda: ["b", '{"n":1}'] in [row[:2] for row in screen.grid()], "the level is not open")
    both = [{"topic": "grow/a", "data": 5}, {"topic": "grow/b", "data": {"n": 2}}]
    http.post("/api/v1/publish", json=both).raise_for_status()
    wanted = [["a", "5"], ["b", '{"n":2}']]
    screen.wait(lambda: all(each in [row[:2] for row in screen.grid()] for each in wanted), "not refreshed")
