"""Pages in a browser, over a server with load at all doors: they show what the server reports."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.common.text import count_text
from penstock.dashboard.pages.tables import topic_link
from tests.browser.places import address_of, publish
from tests.dashboard.browser import RunningDashboard, Shown, wait_for
from tests.dashboard.conftest import StartDashboard
from tests.dashboard.traffic import SLOW_CLIENT, SLOW_TOPIC, Traffic
from tests.support.servers import RunningServer, StartServer

OVERLAP = (
    "const edges = [...document.querySelectorAll('[data-testid=stTopNavLink]')]"
    ".map((one) => one.getBoundingClientRect().right);"
    "return Math.max(...edges) - document.querySelector('.server').getBoundingClientRect().left"
)
DRAWN = ".stVegaLiteChart svg, .st-key-table-slow"
pytestmark = pytest.mark.timeout(300)
Rows = list[list[str]]


@pytest.fixture(scope="module")
def busy(start_server: StartServer, start_dashboard: StartDashboard) -> Iterator[tuple[RunningServer, str]]:
    """Server that had load at all doors while a dashboard polled it, and the dashboard's address."""
    server = start_server({"http": {"port": 0}, "outbox": {"messages": 60}})
    dashboard: RunningDashboard = start_dashboard("--address", f"http://127.0.0.1:{server.port_of('http')}")
    with Traffic(server):
        wait_for(lambda: has_load_everywhere(metrics(server)), lambda: "no load at some door, or no drops")
    wait_for(
        lambda: not metrics(server)["global"]["connected_clients"], lambda: "a client is still connected"
    )
    yield server, dashboard.address


def metrics(server: RunningServer) -> dict[str, Any]:
    response = httpx.get(f"http://127.0.0.1:{server.port_of('http')}/metrics", trust_env=False, timeout=20)
    return dict(response.raise_for_status().json())


def has_load_everywhere(told: dict[str, Any]) -> bool:
    """True if every door published and delivered messages, and some were dropped."""
    is_used = all(door["published"] and door["delivered"] for door in told["doors"].values())
    return is_used and told["global"]["total_dropped"] > 0


def test_the_latency_page_shows_the_times_that_the_server_reports(
    busy: tuple[RunningServer, str], shown: Shown
) -> None:
    server, address = busy
    topics = metrics(server)["topics"]
    delivered = {name: count_text(topic["messages_delivered"]) for name, topic in topics.items()}
    shown.open(f"{address}/latency")

    def rows_of_now() -> Rows:
        rows = shown.rows("latency")
        return rows if all(row[2] == delivered[row[0]] for row in rows) else []

    rows = shown.wait_for(rows_of_now, "no times")
    for name, _, _, *times in rows:
        told = topics[name]["latency_ms"]
        for text, number in zip(times, (told["avg"], told["p95"], told["p99"]), strict=True):
            assert float(text.removesuffix(" ms")) == pytest.approx(number, abs=0.06)
    assert [row[0] for row in rows] == sorted(
        (row[0] for row in rows), key=lambda name: topics[name]["latency_ms"]["p99"], reverse=True
    )


def test_the_backpressure_page_shows_what_was_dropped_and_who_is_slow(
    busy: tuple[RunningServer, str], shown: Shown
) -> None:
    server, address = busy
    told = metrics(server)
    topic = told["topics"][SLOW_TOPIC]
    kinds = ("messages_published", "messages_delivered", "messages_dropped")
    drops = [[SLOW_TOPIC, *(count_text(topic[kind]) for kind in kinds)]]
    shown.open(f"{address}/backpressure")
    shown.wait_for(lambda: shown.rows("drops") == drops, str(drops))
    dropped = count_text(told["global"]["total_dropped"])
    shown.wait_for(lambda: shown.tile("dropped")[0] == dropped, f"not {dropped} dropped")
    shown.wait_for(lambda: shown.tile("waiting") == ("0", "0 B"), "messages are queued")
    assert shown.tile("held") == ("0", "0 times so far")
    assert {row[0] for row in shown.rows("saturation")} <= set(told["topics"])
    shown.wait_for(lambda: SLOW_CLIENT in {row[0] for row in shown.rows("slow")}, "no slow subscriber")


@pytest.mark.parametrize(("page", "table"), [("latency", "latency"), ("backpressure", "drops")])
def test_a_topic_in_a_table_links_to_its_page_in_the_console(
    busy: tuple[RunningServer, str], shown: Shown, page: str, table: str
) -> None:
    server, address = busy
    shown.open(f"{address}/{page}")
    first = shown.wait_for(lambda: shown.rows(table), "no topics")[0][0]
    link = shown.run(f"return document.querySelector('.st-key-table-{table} tbody a').href")
    assert link == topic_link(first, address_of(server))


def test_live_parts_change_without_redrawing_the_page(busy: tuple[RunningServer, str], shown: Shown) -> None:
    server, address = busy
    shown.open(f"{address}/backpressure")
    shown.wait_for(lambda: len(shown.texts(".stVegaLiteChart svg")) == 4, "no charts")
    shown.wait_for(lambda: shown.rows("saturation") and shown.rows("slow"), "no tables")
    shown.wait_for(lambda: stays_after_update(server, shown), "redrawn with each refresh")  # while it loads
    shown.run("window.isMarked = true; document.querySelector('.stMain').scrollTop = 120")
    assert stays_after_update(server, shown)
    assert shown.run("return window.isMarked")
    assert shown.run("return document.querySelector('.stMain').scrollTop") == 120


def stays_after_update(server: RunningServer, shown: Shown) -> bool:
    """True if an update of the page keeps its charts and tables."""
    shown.run(f"document.querySelectorAll('{DRAWN}').forEach((one) => {{ one.isMarked = true; }})")
    before = metrics(server)["global"]["total_published"]
    publish(server, "office/mood", *range(7))
    shown.wait_for(lambda: shown.tile("published")[0] == count_text(before + 7), "no news")
    return bool(shown.run(f"return [...document.querySelectorAll('{DRAWN}')].every((one) => one.isMarked)"))


def test_a_choice_on_the_latency_page_stays_while_values_change(
    busy: tuple[RunningServer, str], shown: Shown
) -> None:
    server, address = busy
    shown.open(f"{address}/latency")
    chosen = ".st-key-latency-of [aria-checked=true], .st-key-latency-of [kind$=Active]"
    shown.wait_for(lambda: shown.texts(chosen) == ["p95"], "no choice")
    shown.run(
        "[...document.querySelectorAll('.st-key-latency-of button')]"
        ".find((one) => one.innerText.trim() === 'p99').click()"
    )
    shown.wait_for(lambda: shown.texts(chosen) == ["p99"], "not chosen")
    publish(server, "office/mood", 1)
    number = count_text(metrics(server)["topics"]["office/mood"]["messages_delivered"])
    shown.wait_for(lambda: [row for row in shown.rows("latency") if row[2] == number] or None, "no news")
    assert shown.texts(chosen) == ["p99"]


@pytest.mark.parametrize("path", ["/latency", "/backpressure"])
def test_a_page_fetches_nothing_from_elsewhere_fits_a_laptop_and_the_console_is_silent(
    busy: tuple[RunningServer, str], shown: Shown, path: str
) -> None:
    address = busy[1]
    shown.open(address + path)
    shown.wait_for(lambda: shown.texts(".stVegaLiteChart svg"), "no charts")
    assert "Streamlit" not in shown.run("return document.title")
    assert shown.texts("[data-testid=stAppDeployButton], [data-testid=stMainMenu]") == []
    assert shown.errors() == []
    assert shown.hosts() == {address.removeprefix("http://")}
    wider = "const one = document.querySelector('.stMain'); return one.scrollWidth - one.clientWidth"
    assert shown.run(OVERLAP) < 0, "the name of the server covers the navigation"
    assert shown.run(wider) <= 0
    values = "return [...document.querySelectorAll('.tile .value')]"
    assert shown.run(f"{values}.filter((one) => one.scrollWidth > one.clientWidth).length") == 0
