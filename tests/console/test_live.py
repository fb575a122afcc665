"""The live tail under load: filter, pause, search, detail."""

import httpx

from tests.console.screen import Screen
from tests.support.servers import RunningServer

BATCH = 1_000
ELEMENTS = 120
KEPT = 5_000


def publish(http: httpx.Client, topic: str, values: range) -> None:
    http.post(
        "/api/v1/publish", json=[{"topic": topic, "data": value} for value in values]
    ).raise_for_status()


def test_thousands_of_messages_are_followed_paused_and_searched(
    screen: Screen, console_server: RunningServer, http: httpx.Client, scale: int
) -> None:
    screen.open(console_server, "live?filter=load/%2B&filter=alarm/%23")
    screen.wait(lambda: screen.texts(".bar .badge") == ["Live"], "it is not live")
    batches = 8 * scale
    for batch in range(batches):
        publish(http, f"load/{batch}", range(batch * BATCH, (batch + 1) * BATCH))
    publish(http, "other/quiet", range(3))
    last = str(batches * BATCH - 1)
    screen.wait(lambda: (rows := screen.grid()) and rows[0][2] == last, "the newest message is not on top")
    assert len(screen.grid()) < ELEMENTS
    screen.wait(lambda: f"the last {KEPT:,} kept" in screen.text(".figure"), "the buffer is not bounded")

    screen.click("Pause")
    publish(http, "alarm/needle", range(1))
    screen.wait(lambda: "1 new: show newest" in screen.text(".bar"), "new messages are not counted")
    assert screen.grid()[0][2] == last
    screen.click("Resume")
    screen.wait(lambda: screen.grid()[0][1] == "alarm/needle", "it does not resume")

    screen.fill("Search", "NEEDLE")
    screen.wait(lambda: [row[1] for row in screen.grid()] == ["alarm/needle"], "the search does not narrow")
    publish(http, "load/0", range(100))
    publish(http, "alarm/needle", range(7, 8))
    screen.wait(lambda: [row[2] for row in screen.grid()] == ["7", "0"], "a new match is not shown")
    screen.run("document.querySelector('.space .row').click()")
    screen.wait(lambda: "alarm/needle" in screen.text(".detail"), "no detail")


def test_a_filter_that_is_not_valid_is_refused_in_words(
    screen: Screen, console_server: RunningServer
) -> None:
    screen.open(console_server, "live?filter=never/used")
    screen.fill("Filter", "a/#/b")
    screen.click("Follow")
    screen.wait(lambda: "Ended" in screen.text(".bar") and "#" in screen.text(".panel.bad"), "no reason")
    assert [each for each in screen.errors() if "400" not in each] == []


def test_data_is_never_markup(screen: Screen, console_server: RunningServer, http: httpx.Client) -> None:
    evil = "<img src=x onerror=alert(1)>"
    screen.open(console_server, "live?filter=evil/%23")
    screen.wait(lambda: screen.texts(".bar .badge") == ["Live"], "it is not live")
    message = {"topic": f"evil/{evil}", "payload": evil, "retain": True}
    http.post("/api/v1/publish", json=message).raise_for_status()
    screen.wait(lambda: [row[1:3] for row in screen.grid()] == [[f"evil/{evil}", evil]], "it is not shown")
    for page in ("topics", "retained?filter=evil/%23", f"topics/evil/{evil.replace(' ', '%20')}"):
        screen.go(page)
        screen.wait(lambda: "evil" in screen.text(), "it is not shown")
        assert screen.run("return document.querySelectorAll('main img').length") == 0
