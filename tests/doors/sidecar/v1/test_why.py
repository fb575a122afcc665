"""Why somebody did not get a message, and who may ask."""

import grpc
import pytest

from tests.doors.sidecar.v1.people import Caller, House, entry

INVALID, FORBIDDEN = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED


def session_of(house: House) -> str:
    return next(name for name in house.broker.sessions if name.startswith("v1-"))


async def test_dropped_message_has_its_reason_and_a_sentence(house: House, caller: Caller) -> None:
    await caller.listen("a", credit=1, max_buffer_size=1)
    publisher = caller.publish()
    await publisher.send(entry("a", b"1"))
    await publisher.send(entry("a", b"2"), entry("a", b"3"))
    client_id = session_of(house)
    said = await caller.why(topic="a", sequence=2, client_id=client_id)
    assert (said.code, said.newest) == ("not-delivered", 3)
    assert said.text.endswith(".")
    (row,) = said.rows
    assert (row.topic, row.client_id, row.reason, row.policy) == (
        "a",
        client_id,
        "outbox-full",
        "drop-oldest",
    )
    assert (row.first, row.last, row.count, row.setting) == (2, 2, 1, "outbox")
    assert 0 < row.first_at_us <= row.last_at_us
    assert (said.message.qos, said.message.door) == (1, "sidecar")
    assert said.message.published_at_us > 0 and said.message.offset > 0


async def test_waiting_message_is_found_where_it_waits(house: House, caller: Caller) -> None:
    await caller.listen("a", credit=1)
    await caller.publish_once("a", b"1", b"2", b"3")
    said = await caller.why(topic="a", sequence=3, client_id=session_of(house))
    assert said.code == "waiting"
    assert [(each.place, each.ahead, each.is_connected) for each in said.waiting] == [("outbox", 1, True)]
    assert list(said.filters) == []


async def test_message_alone_can_be_asked_about(caller: Caller) -> None:
    await caller.publish_once("a", b"1")
    assert (await caller.why(topic="a", sequence=1)).code == "published"
    assert (await caller.why(topic="a", sequence=2)).code == "not-published"
    assert (await caller.why(topic="a", sequence=1, client_id="nobody")).code == "no-session"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"topic": "", "sequence": 1}, "invalid-topic: "),
        ({"topic": "a/#", "sequence": 1}, "invalid-topic: "),
        ({"topic": "a", "sequence": -1}, "invalid-request: a sequence is not negative"),
    ],
)
async def test_question_that_cannot_be_is_refused(
    caller: Caller, asked: dict[str, object], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.why(**asked)
    assert caught.value.code() is INVALID
    assert (caught.value.details() or "").startswith(text)


async def test_only_admins_may_ask_about_others(guarded: House) -> None:
    alice, admin = guarded.caller("alice", "secret"), guarded.caller("admin", "secret")
    await alice.listen("mine/a")
    await alice.publish_once("mine/a", b"1")
    client_id = session_of(guarded)
    assert (await alice.why(topic="mine/a", sequence=1, client_id=client_id)).code == "no-record"
    assert (await admin.why(topic="mine/a", sequence=1)).code == "published"
    for asked in ({"client_id": "other"}, {}):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await alice.why(topic="mine/a", sequence=1, **asked)
        assert caught.value.code() is FORBIDDEN
    assert guarded.broker.counters.actions_forbidden == 2
