"""Topics page in a browser: search among many topics, and all messages of one."""

from collections.abc import Iterator
from datetime import UTC
from functools import partial
from urllib.parse import quote

import pytest

from penstock.client import HttpClient, HttpRefused
from tests.dashboard.actions import click_row, press, write
from tests.dashboard.browser import Shown
from tests.dashboard.conftest import StartDashboard
from tests.support.servers import StartServer

TOPICS = 20_000
SPINDLE = "plant/line-7/spindle"
MESSAGES = 140
pytestmark = pytest.mark.timeout(120)


class Place:
    """A server with many topics, and a dashboard that shows it."""

    def __init__(self, client: HttpClient, address: str) -> None:
        self.client = client
        self.address = address

    def topic(self, name: str, **more: object) -> str:
        """The address of the page of a topic."""
        extra = "".join(f"&{key}={value}" for key, value in more.items())
        return f"{self.address}/topics?topic={quote(name, safe='')}{extra}"


@pytest.fixture(scope="module")
def place(
    start_server: StartServer, start_dashboard: StartDashboard, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A server whose log has more of a topic than its memory."""
    data = tmp_path_factory.mktemp("data")
    server = start_server({"http": {"port": 0}, "data_dir": str(data), "ring": {"messages": 10}})
    address = f"http://127.0.0.1:{server.port_of('http')}"
    with HttpClient(address, client_id="line-7") as client:
        for start in range(0, TOPICS, 2_000):
            client.publish_many(
                {"topic": f"hall/{n // 100:03}/sensor/{n % 100:02}", "data": n, "qos": 0}
                for n in range(start, start + 2_000)
            )
        for start in range(0, MESSAGES, 70):
            client.publish_many(
                {"topic": SPINDLE, "data": {"rpm": 1_000 + n + 1}} for n in range(start, start + 70)
            )
        yield Place(client, start_dashboard("--address", address).address)


def numbers(shown: Shown) -> list[int]:
    """The sequences of the messages in sight."""
    return [int(row[1].replace(",", "")) for row in shown.grid("messages")]


def found(shown: Shown) -> list[str]:
    """The topics in sight."""
    return [row[0] for row in shown.grid("found-topics")]


def title(shown: Shown) -> str:
    return "".join(shown.texts(".st-key-messages-title"))


def wait_for_title(shown: Shown, begin: str) -> None:
    shown.wait_for(lambda: title(shown).startswith(begin), f"no title {begin}")


def wait_for_detail(shown: Shown, *texts: str) -> None:
    """Wait until a message is shown in full, with these texts."""

    def is_shown() -> bool:
        detail = "".join(shown.texts(".st-key-message-detail"))
        return all(text in detail for text in texts)

    shown.wait_for(is_shown, f"no message with {texts}")


def test_a_topic_is_found_among_very_many_and_opened(place: Place, shown: Shown) -> None:
    shown.open(f"{place.address}/topics")
    shown.wait_for(
        lambda: f"{TOPICS + 1:,} topics" in "".join(shown.texts(".st-key-topic-count")), "no count"
    )
    write(shown, "Find a topic", "hall/+/sensor/42")
    shown.wait_for(lambda: "200 topics match" in "".join(shown.texts(".st-key-topic-count")), "no filter")
    shown.wait_for(lambda: found(shown)[:2] == ["hall/000/sensor/42", "hall/001/sensor/42"], "no rows")
    press(shown, "Next")
    shown.wait_for(lambda: found(shown)[:1] == ["hall/050/sensor/42"], "no page")
    write(shown, "Find a topic", "spindle")
    shown.wait_for(lambda: found(shown) == [SPINDLE], "no search")
    click_row(shown, "found-topics", 0)
    shown.wait_for(lambda: shown.texts(".st-key-topic-name") == [SPINDLE], "it is not opened")
    shown.wait_for(lambda: shown.browser.current_url == place.topic(SPINDLE), "it has no address")
    assert shown.errors() == []


def test_an_invalid_filter_is_reported_on_the_page(place: Place, shown: Shown) -> None:
    shown.open(f"{place.address}/topics")
    write(shown, "Find a topic", "hall/#/x")
    with pytest.raises(HttpRefused) as refused:
        place.client.get("/api/v1/topics", filter="hall/#/x")
    assert refused.value.code == "invalid-filter"
    shown.wait_for(lambda: str(refused.value) in "".join(shown.texts(".stAlert")), "no warning")
    assert shown.texts(".stException") == []


def test_its_metrics_are_those_of_the_server(place: Place, shown: Shown) -> None:
    metrics = place.client.metrics(topics=[SPINDLE])["topics"][SPINDLE]
    shown.open(place.topic(SPINDLE))
    expected = {
        "published": f"{metrics['messages_published']:,}",
        "subscribers": str(metrics["subscriber_count"]),
        "dropped": str(metrics["messages_dropped"]),
        "depth": str(metrics["queue_depth"]),
    }
    shown.wait_for(
        lambda: {key: shown.tile(f"topic-{key}")[0] for key in expected} == expected, str(expected)
    )


def test_new_messages_appear_by_themselves_until_it_is_paused(place: Place, shown: Shown) -> None:
    place.client.publish("news", "first")
    shown.open(place.topic("news"))
    shown.wait_for(lambda: numbers(shown) == [1], "no message")
    place.client.publish("news", "second")
    shown.wait_for(lambda: numbers(shown) == [2, 1], "it does not follow")
    press(shown, "Pause")
    shown.wait_for(lambda: "paused" in title(shown) and numbers(shown) == [2, 1], "it does not pause")
    place.client.publish("news", "third")
    shown.wait_for(lambda: shown.tile("topic-published")[0] == "3", "the metrics stop")
    assert shown.wait_for(lambda: numbers(shown), "no messages") == [2, 1]
    press(shown, "Follow")
    shown.wait_for(lambda: numbers(shown) == [3, 2, 1], "it does not follow again")


def test_older_pages_show_the_messages_of_the_log(place: Place, shown: Shown) -> None:
    shown.open(place.topic(SPINDLE))
    for first in range(MESSAGES - 19, 0, -20):
        told = logged(place.client, first)
        shown.wait_for(partial(shows, shown, told), f"not from {first} on")
        wait_for_title(shown, f"Messages {first} to {first + 19} ")
        if first > 1:
            press(shown, "Older")
    assert shown.errors() == []


def shows(shown: Shown, told: list[list[str]]) -> bool:
    """Whether the messages in sight are the first of these."""
    seen = [[*row[:4], row[-1]] for row in shown.grid("messages")]
    return len(seen) >= 10 and seen == told[: len(seen)]


def logged(client: HttpClient, first: int) -> list[list[str]]:
    """What the page should say of twenty messages, the newest first."""
    history = client.messages(SPINDLE, after_sequence=first - 1, limit=20)
    return [
        [
            f"{message.published_at.astimezone(UTC):%F %T.%f}"[:-3],
            str(message.sequence),
            message.door,
            message.client_id,
            bytes(message.value).decode(),
        ]
        for message in reversed(history.messages)
    ]


def test_a_message_named_by_the_address_is_shown_in_full(place: Place, shown: Shown) -> None:
    shown.open(place.topic(SPINDLE, sequence=33))
    wait_for_detail(shown, "Message 33", "client line-7", '"rpm": 1033')
    wait_for_title(shown, "Messages 23 to 42 ")


def test_a_clicked_row_is_shown_in_full_and_pauses_the_list(place: Place, shown: Shown) -> None:
    shown.open(place.topic(SPINDLE))
    shown.wait_for(lambda: numbers(shown)[:1] == [MESSAGES], "no messages")
    click_row(shown, "messages", 2)
    wait_for_detail(shown, f"Message {MESSAGES - 2}")
    shown.wait_for(lambda: "paused" in title(shown), "it is not paused")


def test_a_payload_is_never_interpreted_as_html_or_markdown(place: Place, shown: Shown) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"> **bold** [a](javascript:x)"
    place.client.publish("evil/<b>topic</b>", payload=evil, retain=True)
    shown.open(place.topic("evil/<b>topic</b>", sequence=1))
    wait_for_detail(shown, evil)
    assert shown.texts(".st-key-topic-name") == ["evil/<b>topic</b>"]
    assert shown.run("return document.querySelectorAll('.stMain img').length") == 0
    assert shown.browser.title != "owned"
    shown.wait_for(lambda: "Retained value" in "".join(shown.texts(".st-key-retained-value")), "no value")


def test_bytes_are_shown_in_hexadecimal(place: Place, shown: Shown) -> None:
    place.client.publish("raw", payload=bytes(range(200, 232)))
    shown.open(place.topic("raw", sequence=1))
    wait_for_detail(shown, "000010  d8 d9 da", "32 bytes")


def test_missing_messages_are_reported_with_their_reason(place: Place, shown: Shown) -> None:
    place.client.publish("short", "gone soon", ttl_ms=1)
    place.client.publish("short", "stays")
    shown.open(place.topic("short"))
    shown.wait_for(
        lambda: any(
            "Message 1 is missing: message expired (expired)" in each for each in shown.texts(".stAlert")
        ),
        "no warning",
    )


def test_an_unknown_topic_is_reported(place: Place, shown: Shown) -> None:
    shown.open(place.topic("never/was"))
    shown.wait_for(
        lambda: any("there is no message on never/was" in each for each in shown.texts(".stAlert")),
        "no warning",
    )
    assert shown.texts(".stException") == []
