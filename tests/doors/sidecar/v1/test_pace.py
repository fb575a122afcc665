"""Subscribers that take as much as they said, too little, or nothing for a while."""

from asyncio import create_task, sleep

import grpc
import pytest

from penstock.common.cursor import Cursor
from penstock.core.access.identity import Identity
from penstock.core.runtime.clock import SystemClock
from penstock.core.settings import OutboxSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.transport.method import EndCause
from penstock.doors.sidecar.v1.service import PenstockService
from penstock.doors.sidecar.v1.stream import SubscribeStream
from penstock.wire.sidecar.messages import penstock as wire
from tests.doors.sidecar.fake_call import FakeCall
from tests.doors.sidecar.v1.conftest import Build
from tests.doors.sidecar.v1.people import Caller, House, Listener, entry


async def test_no_more_messages_come_than_were_granted(caller: Caller) -> None:
    listener = await caller.listen("a", credit=7)
    await caller.publish_once("a", *[b"x" * 100] * 20)
    assert [sequence for _, _, sequence in await listener.messages(7)] == list(range(1, 8))
    assert await listener.hears_nothing()
    await listener.ask(credit=wire.Credit(messages=3))
    await listener.ask(credit=wire.Credit(messages=2))
    assert [sequence for _, _, sequence in await listener.messages(5)] == list(range(8, 13))
    assert await listener.hears_nothing()


async def test_what_was_granted_leaves_however_little_may_wait(caller: Caller) -> None:
    listener = await caller.listen("a", credit=3, max_buffer_size=2)
    await caller.publish_once("a", *[b"x" * 100] * 20)
    assert [sequence for _, _, sequence in await listener.messages(3)] == [1, 2, 3]
    assert (await listener.hear("warning")).messages_dropped == 15
    await listener.ask(credit=wire.Credit(messages=9))
    assert [sequence for _, _, sequence in await listener.messages(2)] == [19, 20]


async def test_first_grant_sets_a_limit_where_there_was_none(caller: Caller) -> None:
    listener = await caller.listen("a")
    await caller.publish_once("a", b"1", b"2", b"3")
    await listener.messages(3)
    await listener.ask(credit=wire.Credit(messages=2))
    await listener.add("b")
    await listener.hear("added")
    await caller.publish_once("a", b"4", b"5", b"6")
    assert [payload for _, payload, _ in await listener.messages(2)] == [b"4", b"5"]
    assert await listener.hears_nothing()


async def test_replay_keeps_to_the_credit_and_its_statement_needs_none(caller: Caller) -> None:
    await caller.publish_once("a", *[b"x"] * 10)
    listener = caller.subscribe()
    await listener.ask(open=wire.Open(credit=4))
    await listener.add("a", last=10)
    await listener.hear("opened")
    await listener.hear("added")
    assert [sequence for _, _, sequence in await listener.messages(4)] == [1, 2, 3, 4]
    assert await listener.hears_nothing()
    await listener.ask(credit=wire.Credit(messages=6))
    await listener.messages(6)
    assert (await listener.hear("statement")).served == 10


async def test_who_loses_something_is_warned_with_true_figures(caller: Caller) -> None:
    listener = await caller.listen("a", credit=1, max_buffer_size=5)
    publisher = caller.publish()
    await publisher.send(entry("a", b"0"))
    await listener.messages(1)
    await publisher.send(*(entry("a", b"%d" % number) for number in range(12)))
    warning = await listener.hear("warning")
    assert (warning.messages_dropped, warning.messages_expired) == (7, 0)
    assert (warning.queue_depth, warning.queue_limit) == (5, 5)
    assert warning.reason in ("burst", "slow_consumer")  # by the age of the queue, around the limit
    assert await listener.hears_nothing(1.5)  # nothing more was lost
    await listener.ask(credit=wire.Credit(messages=9))
    assert [payload for _, payload, _ in await listener.messages(5)] == [b"7", b"8", b"9", b"10", b"11"]


async def test_who_has_caught_up_learns_what_it_had_lost(caller: Caller) -> None:
    listener = await caller.listen("a", credit=1, max_buffer_size=5)
    publisher = caller.publish()
    await publisher.send(*(entry("a", b"%d" % number) for number in range(12)))
    await listener.ask(credit=wire.Credit(messages=9))
    kinds, got, dropped = set[str](), list[int](), 0
    while "warning" not in kinds or len(got) < 6:
        event = await listener.take()
        kinds.add(event.WhichOneof("event"))
        got += [run.sequence for run in event.delivery.runs for _ in run.payloads]
        dropped += event.warning.messages_dropped
    assert (len(got), dropped) == (6, 6)


async def test_who_is_cut_off_learns_what_it_had_lost(caller: Caller) -> None:
    listener = await caller.listen("a", credit=1, max_buffer_size=2, policy=wire.POLICY_DISCONNECT)
    publisher = caller.publish()
    await publisher.send(*(entry("a", b"%d" % number) for number in range(9)))
    dropped = 0
    with pytest.raises(grpc.aio.AioRpcError):
        while True:
            dropped += (await listener.take()).warning.messages_dropped
    assert dropped == 8


async def test_what_expires_while_it_waits_is_told(caller: Caller) -> None:
    listener = await caller.listen("a", credit=1)
    publisher = caller.publish()
    await publisher.send(entry("a", b"0"))
    await listener.messages(1)
    await publisher.send(entry("a", b"1", b"2", ttl_ms=100))
    await publisher.send(entry("a", b"3"))
    warning = await listener.hear("warning")
    assert (warning.messages_dropped, warning.messages_expired, warning.reason) == (0, 2, "ttl_expired")
    await listener.ask(credit=wire.Credit(messages=9))
    assert await listener.messages(1) == [("a", b"3", 4)]


async def test_policy_disconnect_ends_the_stream_of_who_is_too_slow(house: House, caller: Caller) -> None:
    listener = await caller.listen("a", credit=1, max_buffer_size=2, policy=wire.POLICY_DISCONNECT)
    publisher = caller.publish()
    await publisher.send(*(entry("a", b"%d" % number) for number in range(9)))
    while True:
        try:
            await listener.take()
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (error.details() or "").startswith("quota-exceeded: slow consumer: too much was queued")
            break
    await house.is_left()


async def test_policy_drop_newest_keeps_the_oldest(caller: Caller) -> None:
    listener = await caller.listen("a", credit=1, max_buffer_size=2, policy=wire.POLICY_DROP_NEWEST)
    publisher = caller.publish()
    await publisher.send(entry("a", b"0"))
    await listener.messages(1)
    await publisher.send(*(entry("a", b"%d" % number) for number in range(1, 6)))
    await listener.ask(credit=wire.Credit(messages=9))
    kept: list[bytes] = []
    while len(kept) < 2:
        event = await listener.take()
        kept += [payload for run in event.delivery.runs for payload in run.payloads]
    assert kept == [b"1", b"2"]


async def test_quiet_stream_is_told_that_all_is_well_and_how_far_it_is(build: Build) -> None:
    house = await build(door={"heartbeat_s": 1.0})
    caller = house.caller()
    listener = await caller.listen("a")
    heartbeat = await listener.hear("heartbeat")
    assert heartbeat.timestamp_ms > 1_600_000_000_000
    assert Cursor.decode(heartbeat.cursor)
    await caller.publish_once("a", b"1")
    assert await listener.messages(1) == [("a", b"1", 1)]
    other = caller.subscribe()
    await other.add("a", after=heartbeat.cursor)
    await other.hear("opened")
    await other.hear("added")
    assert await other.messages(1) == [("a", b"1", 1)]


async def test_heartbeat_has_no_cursor_while_something_waits(build: Build) -> None:
    house = await build(door={"heartbeat_s": 1.0})
    caller = house.caller()
    listener = await caller.listen("a", credit=1)
    await caller.publish_once("a", b"1", b"2")
    await listener.messages(1)
    assert (await listener.hear("heartbeat")).cursor == ""
    await listener.ask(credit=wire.Credit(messages=1))
    await listener.messages(1)
    assert (await listener.hear("heartbeat")).cursor


async def read_until(listener: Listener, last: int) -> tuple[list[int], int]:
    """Sequences of messages until the last of them has come, and how many a client was told that it lost."""
    sequences, dropped = list[int](), 0
    while not sequences or sequences[-1] < last:
        event = await listener.take()
        dropped += event.warning.messages_dropped
        for run in event.delivery.runs:
            sequences += range(run.sequence, run.sequence + len(run.payloads))
    return sequences, dropped


async def test_stalled_reader_costs_the_others_nothing(build: Build) -> None:
    house = await build(outbox=OutboxSettings(messages=2_000))
    stalled, reader = await house.caller().listen("a"), await house.caller().listen("a")
    reading = create_task(read_until(reader, 15_000))
    publisher = house.caller().publish()
    for _ in range(150):
        await publisher.send(entry("a", *[b"x" * 1_000] * 100))
        await sleep(0)
    assert await reading == (list(range(1, 15_001)), 0)
    sequences, dropped = await read_until(stalled, 15_000)
    if dropped < 15_000 - len(sequences):  # the last of it is told within a second
        dropped += (await stalled.hear("warning")).messages_dropped
    assert len(sequences) + dropped == 15_000
    assert sequences == sorted(set(sequences))
    assert dropped > 0


class NarrowCall(FakeCall):
    """A call whose client has sent one more request, and then takes nothing of what it gets."""

    __slots__ = ("unread",)

    unread: bytes

    def send(self, messages: bytes) -> None:
        super().send(messages)
        if len(messages) > 1_000 and self.handler is not None:
            self.handler.pause_writing()

    def resume_reading(self) -> None:
        super().resume_reading()
        unread, self.unread = self.unread, b""
        if unread and self.handler is not None:
            self.handler.message_received(unread)


async def test_request_whose_answer_fills_the_stream_again_leaves_it_full(house: House) -> None:
    service = PenstockService(SidecarSettings(), house.broker, SystemClock())
    call = NarrowCall()
    call.identity, call.unread = Identity(None, ""), b""
    stream = call.handler = SubscribeStream(service, call)
    stream.message_received(wire.SubscribeRequest(open=wire.Open(client_id="narrow")).SerializeToString())
    call.unread = wire.SubscribeRequest(add=wire.Add(filters=["a" * 1_000])).SerializeToString()
    (session,) = (each for each in house.broker.sessions.values() if "narrow" in each.client_id)
    stream.pause_writing()
    stream.resume_writing()
    assert session.is_paused
    assert not call.is_reading
    stream.resume_writing()
    assert not session.is_paused
    assert call.is_reading
    stream.ended(EndCause.CANCELLED)
