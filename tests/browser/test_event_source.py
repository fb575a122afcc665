"""The browser's own EventSource: events with cursors, and resumption that it does by itself."""

from collections.abc import Callable

from tests.browser.pages import Page
from tests.browser.places import Place, publish
from tests.support.servers import RunningServer

LISTEN = """
  window.box = new Box();
  window.source = new EventSource(given[0]);
  const opened = new Promise((resolve) => { source.onopen = resolve; });
  source.onmessage = ({ data, lastEventId }) => box.put([JSON.parse(data), lastEventId]);
  await opened;
"""


def test_events_come_with_their_cursors(page: Page, web_server: RunningServer) -> None:
    page.open(web_server).run(LISTEN, "/api/v1/events?filter=sse/%23&filter=other")
    cursors = publish(web_server, "sse/a", {"n": 1}, "two") + publish(web_server, "other", 3)
    events = page.run("return await box.take(3);")
    assert [(event["topic"], event["data"]) for event, _ in events] == [
        ("sse/a", {"n": 1}),
        ("sse/a", "two"),
        ("other", 3),
    ]
    assert [cursor for _, cursor in events] == [event["cursor"] for event, _ in events] == cursors


def test_the_past_comes_first_and_a_statement_ends_it(page: Page, web_server: RunningServer) -> None:
    first, *_ = publish(web_server, "past/a", 1, 2, 3)
    told = page.open(web_server).run(
        """
        const box = new Box();
        const source = new EventSource(`/api/v1/events?filter=past/%23&after=${given[0]}`);
        source.onmessage = ({ data }) => box.put(JSON.parse(data).data);
        source.addEventListener("statement", ({ data }) => box.put(JSON.parse(data)));
        return await box.take(3);
        """,
        first,
    )
    assert told[:2] == [2, 3]
    assert (told[2]["served"], told[2]["is_complete"]) == (2, True)


def test_a_stream_goes_on_where_it_was_after_a_crash(
    page: Page, place_of: Callable[..., Place], tmp_path: str
) -> None:
    place = place_of({"data_dir": f"{tmp_path}/data"})
    page.open(place.server).run(LISTEN, "/api/v1/events?filter=crash/%23")
    publish(place.server, "crash/a", 1)
    assert page.run("return (await box.take(1))[0][0].data;") == 1
    place.kill()
    publish(place.start(port=0), "crash/a", 2, 3)  # while the page cannot hear it
    place.server.stop()
    publish(place.start(), "crash/a", 4)
    assert [event["data"] for event, _ in page.run("return await box.take(3);")] == [2, 3, 4]
