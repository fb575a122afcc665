"""Who may do what, also when that changes, and how a server stops."""

from asyncio import create_task
from pathlib import Path

import grpc
import pytest

from tests.doors.sidecar.v1.conftest import QUICK
from tests.doors.sidecar.v1.people import House, entry


async def test_what_is_forbidden_is_refused_entry_by_entry(guarded: House) -> None:
    publisher = guarded.caller("alice", "secret").publish()
    ack = await publisher.send(entry("mine/a", b"1"), entry("yours/a", b"2"), entry("mine/a", b"3"))
    assert ack.accepted == 2
    assert [(refusal.index, refusal.code) for refusal in ack.refusals] == [(1, "not-authorized")]
    assert guarded.broker.counters.actions_forbidden == 1


async def test_filter_that_is_forbidden_is_refused_with_all_of_its_request(guarded: House) -> None:
    listener = await guarded.caller("alice", "secret").listen("mine/a")
    await listener.add("mine/b", "yours/#")
    assert (await listener.hear("refused")).code == "not-authorized"
    session = next(iter(guarded.broker.sessions.values()))
    assert list(session.subscriptions) == ["mine/a"]


async def test_rules_for_a_client_id_go_by_what_the_client_calls_itself(guarded: House) -> None:
    alice = guarded.caller("alice", "secret")
    await alice.listen("own/pump", client_id="pump")
    listener = await alice.listen("mine/a", client_id="pump")
    await listener.add("own/other")
    assert (await listener.hear("refused")).code == "not-authorized"


@pytest.mark.parametrize("password", ["wrong", ""])
async def test_wrong_password_is_let_into_no_method(guarded: House, password: str) -> None:
    caller = guarded.caller("alice", password)
    for conversation in (caller.publish(), caller.subscribe()):
        assert (await conversation.ending())[0] is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.why(topic="a", sequence=1)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_filters_that_may_not_be_read_any_more_are_withdrawn(guarded: House, tmp_path: Path) -> None:
    listener = await guarded.caller("alice", "secret").listen("mine/a", "mine/b")
    (tmp_path / "acl").write_text("user alice\npublish mine/#\nsubscribe mine/b\n")
    guarded.server.reload()
    withdrawn = await listener.hear("withdrawn")
    assert (list(withdrawn.filters), withdrawn.code) == (["mine/a"], "not-authorized")
    publisher = guarded.caller("alice", "secret").publish()
    await publisher.send(entry("mine/a", b"1"), entry("mine/b", b"2"))
    assert await listener.messages(1) == [("mine/b", b"2", 1)]


async def test_stream_of_who_is_not_known_any_more_ends(guarded: House, tmp_path: Path) -> None:
    listener = await guarded.caller("alice", "secret").listen("mine/a")
    (tmp_path / "passwords").write_text(f"admin:{QUICK.hash('secret')}\n")
    guarded.server.reload()
    assert (await listener.ending())[0] is grpc.StatusCode.UNAUTHENTICATED
    await guarded.is_left()


async def test_publisher_loses_its_rights_in_the_middle_of_a_call(guarded: House, tmp_path: Path) -> None:
    publisher = guarded.caller("alice", "secret").publish()
    assert (await publisher.send(entry("mine/a", b"1"))).accepted == 1
    (tmp_path / "acl").write_text("user alice\nsubscribe mine/#\n")
    guarded.server.reload()
    ack = await publisher.send(entry("mine/a", b"2"))
    assert [refusal.code for refusal in ack.refusals] == ["not-authorized"]


async def test_call_of_who_is_not_known_any_more_publishes_nothing_more(
    guarded: House, tmp_path: Path
) -> None:
    publishing, idle = (guarded.caller("alice", "secret").publish() for _ in range(2))
    for publisher in (publishing, idle):
        await publisher.send(entry("mine/a", b"1"))
    (tmp_path / "passwords").write_text(f"admin:{QUICK.hash('secret')}\n")
    guarded.server.reload()
    await publishing.write(entry("mine/a", b"2"))
    for publisher in (publishing, idle):
        status = (grpc.StatusCode.UNAUTHENTICATED, "bad-credentials: your credentials are not valid any more")
        assert await publisher.ending() == status
    assert guarded.broker.topics["mine/a"].sequence == 2


async def test_call_ends_when_its_password_was_replaced_and_goes_on_when_others_were(
    guarded: House, tmp_path: Path
) -> None:
    alice, admin = (guarded.caller(name, "secret").publish() for name in ("alice", "admin"))
    for publisher in (alice, admin):
        await publisher.send(entry("mine/a", b"1"))
    lines = (tmp_path / "passwords").read_text().splitlines()
    (tmp_path / "passwords").write_text(f"alice:{QUICK.hash('another')}\n{lines[1]}\n")
    guarded.server.reload()
    assert (await alice.ending())[0] is grpc.StatusCode.UNAUTHENTICATED
    assert (await admin.send(entry("mine/a", b"2"))).refusals[0].code == "not-authorized"


async def test_call_that_missed_a_reload_comes_again(guarded: House) -> None:
    publisher = guarded.caller("alice", "secret").publish()
    await publisher.send(entry("mine/a", b"1"))
    guarded.server.reload()
    guarded.server.reload()
    assert (await publisher.ending())[0] is grpc.StatusCode.UNAVAILABLE


async def test_server_that_stops_ends_every_call_with_a_reason(house: House) -> None:
    caller = house.caller()
    listener, publisher = await caller.listen("a"), caller.publish()
    await publisher.send(entry("a", b"1"))
    assert await listener.messages(1) == [("a", b"1", 1)]
    stopping = create_task(house.server.stop())
    assert await publisher.ending() == (
        grpc.StatusCode.UNAVAILABLE,
        "shutting-down: the server is about to stop",
    )
    assert await listener.ending() == (
        grpc.StatusCode.UNAVAILABLE,
        "shutting-down: the server is about to stop",
    )
    await stopping
