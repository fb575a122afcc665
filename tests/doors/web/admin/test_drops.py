"""What was not delivered of late, a page at a time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.app import Server
from penstock.core.settings import AccessSettings, LedgerSettings, OutboxSettings
from penstock.doors.web.admin import drops
from penstock.model import Policy, Reason
from tests.doors.serving import Start, client_of, mqtt_of
from tests.support.samples import make_run
from tests.support.waiting import until


def lose(
    server: Server,
    sequence: int,
    topic: str = "a",
    client: str = "c",
    reason: Reason = Reason.EXPIRED,
    **more: Any,
) -> None:
    """Record a message that somebody did not get."""
    server.broker.ledger.add(make_run(topic, b"x", sequence=sequence), client, reason, **more)


async def listed(http: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await http.get("/api/v1/drops", params=asked)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def numbers(page: dict[str, Any]) -> list[int]:
    return [row["number"] for row in page["drops"]]


async def test_nothing_was_lost_at_first(http: httpx.AsyncClient) -> None:
    assert await listed(http) == {"drops": [], "next": None, "total": 0, "rows_forgotten": 0}


async def test_what_a_slow_client_lost_is_told_with_the_reason_and_the_setting(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=1))
    async with client_of(server) as http, mqtt_of(server, "reader") as reader, mqtt_of(server) as sender:
        await reader.subscribe("a")
        server.broker.pause(server.broker.sessions["reader"])
        for _ in range(3):
            await sender.publish("a", b"x", qos=1)
        (row,) = (await listed(http))["drops"]
    assert (row["topic"], row["client_id"], row["reason"]) == ("a", "reader", "outbox-full")
    assert (row["first"], row["last"], row["count"], row["policy"]) == (2, 3, 2, "drop-newest")
    assert row["setting"] == "outbox"
    assert row["first_at"] <= row["last_at"]


async def test_list_waits_for_what_is_not_recorded_yet(
    server: Server, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(server.broker._node.drops._unrecorded, "add", waiting.append)
    asking = asyncio.create_task(listed(http))
    await until(lambda: waiting, "nothing waits for the ledger")
    lose(server, 1)
    waiting[0]()
    assert numbers(await asking) == [1]


async def test_the_latest_come_first_a_page_at_a_time(server: Server, http: httpx.AsyncClient) -> None:
    for sequence in range(1, 11, 2):  # with gaps, so that they are five records
        lose(server, sequence)
    first = await listed(http, limit=2)
    assert (numbers(first), first["next"], first["total"]) == ([5, 4], 4, 5)
    second = await listed(http, limit=2, after=first["next"])
    third = await listed(http, limit=2, after=second["next"])
    assert (numbers(second), numbers(third), third["next"]) == ([3, 2], [1], None)
    assert numbers(await listed(http, after=1)) == numbers(await listed(http, after=0)) == []


async def test_a_page_neither_repeats_nor_skips_what_was_there_when_others_come_meanwhile(
    server: Server, http: httpx.AsyncClient
) -> None:
    for sequence in (1, 3, 5, 7):
        lose(server, sequence)
    first = await listed(http, limit=2)
    lose(server, 8)  # the last record grows
    lose(server, 20)
    second = await listed(http, limit=2, after=first["next"])
    assert (numbers(first), numbers(second), second["next"]) == ([4, 3], [2, 1], None)
    grown = await listed(http, limit=2)
    assert [(row["number"], row["last"]) for row in grown["drops"]] == [(5, 20), (4, 8)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"topic": "a"}, [3, 1]),
        ({"client": "d"}, [3, 2]),
        ({"reason": "outbox-full"}, [2, 1]),
        ({"topic": "a", "client": "d"}, [3]),
        ({"topic": "a", "reason": "refused"}, []),
    ],
)
async def test_some_can_be_asked_for(
    server: Server, http: httpx.AsyncClient, asked: dict[str, str], expected: list[int]
) -> None:
    lose(server, 1, "a", "c", Reason.OUTBOX_FULL, policy=Policy.DROP_NEWEST)
    lose(server, 1, "b", "d", Reason.OUTBOX_FULL)
    lose(server, 1, "a", "d", Reason.EXPIRED)
    page = await listed(http, **asked)
    assert (numbers(page), page["total"]) == (expected, 3)


async def test_what_is_rare_is_found_in_slices_wherever_a_page_ends(
    server: Server, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drops, "ROWS_A_SLICE", 3)
    for sequence in range(20):
        lose(server, 2 * sequence + 1, "rare" if sequence % 7 == 0 else "often")
    first = await listed(http, topic="rare", limit=2)
    second = await listed(http, topic="rare", limit=2, after=first["next"])
    assert (numbers(first), numbers(second), second["next"]) == ([15, 8], [1], None)


async def test_what_made_room_for_others_is_counted_and_no_page_stumbles_over_it(start: Start) -> None:
    server = await start(ledger=LedgerSettings(rows=3))
    async with client_of(server) as http:
        for sequence in (1, 3, 5):
            lose(server, sequence)
        first = await listed(http, limit=1)
        for sequence in (7, 9):
            lose(server, sequence)
        second = await listed(http, limit=5, after=first["next"])
        assert (numbers(first), numbers(second)) == ([3], [])
        page = await listed(http)
        assert (numbers(page), page["total"], page["rows_forgotten"]) == ([5, 4, 3], 3, 2)


@pytest.mark.parametrize("asked", [{"reason": "bored"}, {"after": "-1"}, {"limit": "0"}, {"topic": ""}])
async def test_what_cannot_be_asked_is_refused(http: httpx.AsyncClient, asked: dict[str, str]) -> None:
    answer = await http.get("/api/v1/drops", params=asked)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")


async def test_drops_are_shown_only_to_those_who_may_read_the_servers_topics(
    start: Start, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth #\n")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    async with client_of(server) as http:
        for path in ("/api/v1/drops", "/api/v1/config"):
            assert (await http.get(path)).status_code == 403
