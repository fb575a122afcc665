"""Lake page in a browser: content of the manifest, and how to set up a lake."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.client import HttpClient
from penstock.common.text import count_text, size_text
from penstock.lake import lake_messages
from tests.dashboard.browser import Shown
from tests.dashboard.conftest import StartDashboard
from tests.dashboard.lakes import add_insights, make_lake
from tests.support.servers import RunningServer, StartServer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def durable(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server with a log."""
    return start_server({"http": {"port": 0}, "data_dir": str(tmp_path_factory.mktemp("data"))})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with messages of three days, and an insight."""
    folder = tmp_path_factory.mktemp("lake")
    make_lake(folder)
    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    add_insights(folder, "drops", "10s", noon, [{"reason": "outbox-full", "messages": 17}])
    return folder


def address_of(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.port_of('http')}"


@pytest.fixture(scope="module")
def page(durable: RunningServer, lake: Path, start_dashboard: StartDashboard) -> Iterator[str]:
    """Where the page of the lake is."""
    with HttpClient(address_of(durable)) as client:
        client.hold("nightly", client.position("earliest").cursor, 86_400)
    yield f"{start_dashboard('--address', address_of(durable), '--lake', str(lake)).address}/"


def test_its_numbers_are_those_of_the_manifest(page: str, lake: Path, shown: Shown) -> None:
    manifest = lake_messages(lake).manifest()
    shown.open(page)
    shown.wait_for(lambda: shown.tile("lake-rows")[0] == count_text(manifest.rows), "no rows")
    shown.wait_for(lambda: shown.rows("lake-holds"), "no holds")
    assert shown.tile("lake-bytes")[0] == size_text(manifest.bytes)
    assert shown.tile("lake-files")[0] == count_text(len(manifest.files))
    assert shown.tile("lake-version")[0] == count_text(manifest.version)
    assert [[row[0], row[-1]] for row in shown.rows("lake-days")] == [
        ["2026-11-18", "40"],
        ["2026-11-17", "40"],
        ["2026-11-16", "40"],
    ]
    assert [row[0] for row in shown.rows("lake-commits")] == ["3", "2", "1"]
    name, owner, lapses_in = shown.rows("lake-holds")[0][:3]
    assert (name, owner) == ("nightly", "anonymous") and lapses_in.startswith("23 h ")
    shown.wait_for(lambda: shown.rows("insight-drops") == [["outbox-full", "17", "-"]], "no insight")
    assert shown.errors() == []


def test_a_lake_that_grows_is_seen_to_grow(page: str, lake: Path, shown: Shown) -> None:
    shown.open(page)
    before = lake_messages(lake).manifest().rows
    shown.wait_for(lambda: shown.tile("lake-rows")[0] == count_text(before), "no rows")
    make_lake(lake, batches=1)
    shown.wait_for(lambda: shown.tile("lake-rows")[0] == count_text(before + 40), "it does not grow")


def test_without_a_lake_it_says_how_to_make_one(
    durable: RunningServer, start_dashboard: StartDashboard, shown: Shown
) -> None:
    shown.open(f"{start_dashboard('--address', address_of(durable)).address}/")
    command = f"penstock pipeline archive --lake lake --address {address_of(durable)} --follow"
    shown.wait_for(lambda: command in "".join(shown.texts(".st-key-lake-beginning")), command)
    assert shown.errors() == []


def test_an_empty_folder_and_a_server_without_a_log_are_reported(
    start_server: StartServer, start_dashboard: StartDashboard, tmp_path: Path, shown: Shown
) -> None:
    server = start_server({"http": {"port": 0}})
    shown.open(f"{start_dashboard('--address', address_of(server), '--lake', str(tmp_path)).address}/")
    shown.wait_for(lambda: shown.texts(".st-key-lake-memory-only"), "no note on the log")
    shown.wait_for(
        lambda: "no messages yet" in "".join(shown.texts(".st-key-lake-failure")), "no note on the lake"
    )
