"""Why page in a browser: the server's verdict and its records."""

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from selenium.webdriver import Keys

from penstock.client import HttpClient
from tests.dashboard.actions import click_row, write
from tests.dashboard.browser import Shown
from tests.dashboard.conftest import StartDashboard
from tests.dashboard.undelivered import AWAY, publish_undelivered
from tests.support.servers import StartServer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def place(start_server: StartServer, start_dashboard: StartDashboard) -> Iterator[tuple[HttpClient, str]]:
    """Client of a server with undelivered messages, and the address of the page."""
    server = start_server({"http": {"port": 0}})
    address = f"http://127.0.0.1:{server.port_of('http')}"
    with HttpClient(address) as client:
        publish_undelivered(server.port, client)
        yield client, f"{start_dashboard('--address', address).address}/why"


def answer(shown: Shown) -> str:
    return "".join(shown.texts(".st-key-why-answer"))


def test_the_verdict_is_the_servers(place: tuple[HttpClient, str], shown: Shown) -> None:
    client, page = place
    asked = {"topic": "dock/in", "sequence": 3, "client": AWAY}
    said = client.why("dock/in", 3, AWAY)
    shown.open(f"{page}?{urlencode(asked)}")
    shown.wait_for(lambda: said["text"] in answer(shown), said["text"])
    assert said["code"] == "not-delivered" and answer(shown).startswith("not-delivered")
    [row] = shown.wait_for(lambda: shown.rows("why-rows"), "no rows")
    assert (row[:2], row[-2:]) == ([AWAY, "not-connected"], ["1 to 5", "5"])
    assert shown.errors() == []


def test_a_question_that_is_typed_in_can_be_shared(place: tuple[HttpClient, str], shown: Shown) -> None:
    client, page = place
    shown.open(page)
    write(shown, "Topic", "dock/out", ends_with=Keys.TAB)
    write(shown, "Sequence", "9")
    text = client.why("dock/out", 9)["text"]
    shown.wait_for(lambda: text in answer(shown), text)
    address = f"{page}?topic=dock%2Fout&sequence=9"
    shown.wait_for(lambda: shown.browser.current_url == address, "it has no address")


def test_a_question_without_a_number_is_refused(place: tuple[HttpClient, str], shown: Shown) -> None:
    _, page = place
    shown.open(f"{page}?topic=dock%2Fin&sequence=many")
    shown.wait_for(
        lambda: any("the sequence is a number" in each for each in shown.texts(".stAlert")), "no warning"
    )


def test_records_are_totalled_and_a_click_asks_why(place: tuple[HttpClient, str], shown: Shown) -> None:
    client, page = place
    shown.open(page)
    total = client.metrics()["not_delivered"]["not-connected"]
    shown.wait_for(lambda: shown.tile("reason-not-connected")[0] == str(total), "no total")
    shown.wait_for(lambda: [row[1] for row in shown.grid("drops")] == ["dock/out", "dock/in"], "no records")
    click_row(shown, "drops", 1)
    shown.wait_for(lambda: client.why("dock/in", 5, AWAY)["text"] in answer(shown), "it is not asked")
    shown.wait_for(lambda: f"client={AWAY}" in shown.browser.current_url, "it has no address")
    assert shown.errors() == []
