"""Clients that want more than their share: of memory, or of a connection that others use as well."""

import asyncio
import tracemalloc
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from structlog.testing import capture_logs

from penstock.core.runtime.deadlines import WAITS_PER_SECOND
from penstock.doors.sidecar.door import FAR_S
from penstock.doors.sidecar.transport.method import Call, EndCause, Handler, Streaming, Unary
from penstock.wire.grpc import encode_message
from penstock.wire.http2 import ErrorCode
from tests.doors.sidecar.transport.conftest import StartServing
from tests.doors.sidecar.transport.serving import (
    ACK,
    CHAT,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    HOLD,
    PING,
    RST_STREAM,
    SAY,
    SERVICE,
    SETTINGS,
    TIMEOUT_S,
    WAIT,
    WINDOW_UPDATE,
    Serving,
    frame,
    unary_unary,
)
from tests.doors.sidecar.transport.test_flow import KIB, small_client
from tests.doors.sidecar.transport.test_frames import ask, say
from tests.support.waiting import until

MIB = 1024 * KIB
NO_ROOM = frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0")
MARK = frame(PING, 0, 0, b"mark    ")
LARGE, ENDLESS = SERVICE + "Large", SERVICE + "Endless"


class Endless(Handler):
    """Sends as long as it is not told to pause."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_paused = False

    def message_received(self, message: bytes) -> None:
        self._send()

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._send()

    def _send(self) -> None:
        for _ in range(10_000):
            if self.is_paused:
                return
            self.call.send(encode_message(bytes(KIB)))


class LateAdmission:
    """Lets nobody in to the endless method before it is told to."""

    generation = 0

    def __init__(self) -> None:
        self._waiting: list[tuple[Call, Callable[[], None]]] = []

    def admit(self, call: Call, known: dict[Any, Any], begin: Callable[[], None]) -> None:
        if call.path == ENDLESS:
            call.handler = Handler()
            self._waiting.append((call, begin))
        else:
            begin()

    def let_in(self) -> None:
        for call, begin in self._waiting:
            call.handler = None
            begin()

    def close(self) -> None:
        """Nothing is left to do."""


def offer(serving: Serving) -> tuple[list[Call], list[Endless]]:
    """Add a method with large answers, and one without an end; who called them."""
    asked: list[Call] = []
    endless: list[Endless] = []

    def answer(call: Call, message: bytes) -> None:
        asked.append(call)
        call.respond(bytes(MIB))

    def begin(call: Call) -> Handler:
        endless.append(Endless(call))
        return endless[-1]

    serving.door.methods = {**serving.echo.methods, LARGE: Unary(answer), ENDLESS: Streaming(begin)}
    return asked, endless


def large(stream_id: int) -> bytes:
    """A whole call for a large answer."""
    return ask(stream_id, LARGE) + frame(DATA, END_STREAM, stream_id, bytes(5))


# Memory


async def test_answers_that_nobody_reads_are_given_up_when_there_are_too_many(start: StartServing) -> None:
    serving = await start(max_unfinished_bytes=5 * MIB)
    offer(serving)
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + NO_ROOM + b"".join(large(2 * number + 1) for number in range(20)))
    given_up: list[int] = []
    while len(given_up) < 16:
        _, _, stream_id, payload = await client.take_kind(RST_STREAM)
        given_up.append(stream_id)
        assert int.from_bytes(payload, "big") == ErrorCode.ENHANCE_YOUR_CALM
    assert given_up == list(range(9, 41, 2))
    assert serving.door._unfinished_bytes == 4 * (MIB + 5)
    await client.close()
    await until(lambda: not serving.door.connections, "a connection is still open")
    assert serving.door._unfinished_bytes == 0


async def test_an_answer_that_is_read_after_all_counts_no_more(serving: Serving) -> None:
    offer(serving)
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + NO_ROOM + large(1) + large(3))
    await until(
        lambda: serving.door._unfinished_bytes == 2 * (MIB + 5), "the two large messages were not counted"
    )
    room = (2 * MIB).to_bytes(4, "big")
    client.send(frame(WINDOW_UPDATE, 0, 0, (4 * MIB).to_bytes(4, "big")) + frame(WINDOW_UPDATE, 0, 1, room))
    await until(lambda: serving.door._unfinished_bytes == MIB + 5, "the large message was not counted")
    client.send(frame(RST_STREAM, 0, 3, bytes(4)))
    await until(lambda: serving.door._unfinished_bytes == 0, "unfinished messages are still counted")
    await client.close()


async def test_calls_wait_while_answers_to_those_before_are_not_read(serving: Serving) -> None:
    """However many have come in one chunk, and however much room their streams have."""
    asked, _ = offer(serving)
    client = await small_client(serving)
    client.send(b"".join(large(2 * number + 1) for number in range(30)))
    await until(lambda: asked, "no request was made")
    await asyncio.sleep(0.2)
    assert len(asked) < 5
    answered = 0
    while answered < 30:
        answered += (await client.take_kind(HEADERS))[1] & END_STREAM
    assert len(asked) == 30
    await client.close()


async def test_small_pieces_for_a_call_that_takes_nothing_cost_no_more_than_they_are(
    serving: Serving,
) -> None:
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + ask(1, HOLD) + frame(DATA, 0, 1, bytes(5)))
    await until(lambda: serving.echo.handlers, "no call was received")
    tracemalloc.start()
    for _ in range(4):
        client.send(frame(DATA, 0, 1, b"xy") * 25_000)
        await client.writer.drain()
    client.send(MARK)
    await client.take_kind(PING)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 2 * MIB
    await client.close()


@pytest.mark.parametrize("path", [SAY, SERVICE + "Unknown"])
async def test_a_connection_remembers_little_of_long_requests(serving: Serving, path: str) -> None:
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK))
    tracemalloc.start()
    for stream_id in range(1, 200, 2):
        many = [(b"a%d" % number, b"%d" % stream_id) for number in range(300)]
        client.send(ask(stream_id, path, *many) + frame(DATA, END_STREAM, stream_id, bytes(5)))
        await client.take_kind(HEADERS)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < MIB
    await client.close()


async def test_calls_with_much_metadata_are_refused_when_there_are_too_many(start: StartServing) -> None:
    serving = await start(max_unfinished_bytes=MIB, max_message_bytes=KIB)
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK))
    many = [(b"a%d" % number, b"x") for number in range(300)]
    ids = range(1, 200, 2)
    client.send(b"".join(ask(stream_id, CHAT, *many) for stream_id in ids))
    _, flags, refused_id, _ = await client.take_kind(HEADERS)
    assert flags & END_STREAM
    client.send(say(201, b"small"))
    assert (await client.take_kind(DATA))[2] == 201
    client.send(b"".join(frame(RST_STREAM, 0, stream_id, bytes(4)) for stream_id in ids))
    await until(lambda: serving.door._unfinished_bytes == 0, "unfinished messages are still counted")
    assert len(serving.echo.causes) == ids.index(refused_id) < 50
    await client.close()


# Time


async def test_deadlines_far_away_leave_no_trace_of_calls_that_are_over(serving: Serving) -> None:
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK))
    for number in range(50):
        timeout = (b"grpc-timeout", b"%dH" % (number + 1))
        stream_id = 2 * number + 1
        client.send(ask(stream_id, SAY, timeout) + frame(DATA, END_STREAM, stream_id, bytes(5)))
        await client.take_kind(DATA)
    furthest = max(serving.door.deadlines._buckets)
    assert furthest <= (serving.door.clock.monotonic() + FAR_S + 1) * WAITS_PER_SECOND
    await client.close()


async def test_a_deadline_far_away_is_kept(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doors.sidecar.door.FAR_S", 0.05)
    loop = asyncio.get_running_loop()
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + ask(1, WAIT, (b"grpc-timeout", b"500m")) + frame(DATA, 1, 1, bytes(5)))
    await until(lambda: serving.echo.waiting, "no call is waiting")
    begun_at = loop.time()
    _, flags, stream_id, _ = await client.take_kind(HEADERS)
    assert (flags & END_STREAM, stream_id) == (END_STREAM, 1)
    assert serving.echo.causes == [EndCause.DEADLINE]
    assert loop.time() - begun_at > 0.4
    await client.close()


async def test_a_message_whose_rest_does_not_come_ends_its_call(
    start: StartServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.doors.sidecar.transport.timeouts.UNFINISHED_S", 0.3)
    serving = await start()
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + ask(1, SAY) + frame(DATA, 0, 1, b"\0\0\0\0\x09begun"))
    client.send(ask(3, CHAT) + frame(DATA, 0, 3, encode_message(b"whole")))
    assert (await client.take_kind(DATA))[2] == 3
    _, flags, stream_id, block = await client.take_kind(HEADERS)
    assert (flags & END_STREAM, stream_id) == (END_STREAM, 1)
    assert b"was not complete in time" in block
    client.send(frame(DATA, 0, 3, encode_message(b"again")))
    assert (await client.take_kind(DATA))[2] == 3
    await client.close()


async def test_a_message_whose_rest_its_method_does_not_take_ends_nothing(
    start: StartServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.doors.sidecar.transport.timeouts.UNFINISHED_S", 0.3)
    serving = await start()
    client = await serving.raw()
    body = encode_message(b"first") + encode_message(b"second")
    client.send(frame(SETTINGS, ACK) + ask(1, HOLD) + frame(DATA, 0, 1, body[:12]))
    client.send(frame(DATA, END_STREAM, 1, body[12:]))
    await until(lambda: serving.echo.handlers, "no call was received")
    await asyncio.sleep(2.5)
    assert serving.echo.causes == []
    (handler,) = serving.echo.handlers
    assert isinstance(handler, Handler)
    for _ in range(2):
        handler.call.resume_reading()  # type: ignore[attr-defined]
    assert (await client.take_kind(DATA))[3] == encode_message(b"2")
    await client.close()


# Turns


async def test_streams_of_one_connection_have_their_turns(serving: Serving) -> None:
    _, endless = offer(serving)
    client = await small_client(serving)
    client.send(
        b"".join(ask(stream_id, ENDLESS) + frame(DATA, 0, stream_id, bytes(5)) for stream_id in (1, 3, 5))
    )
    taken_bytes = {1: 0, 3: 0, 5: 0}
    while sum(taken_bytes.values()) < 4 * MIB:
        _, _, stream_id, payload = await client.take_kind(DATA)
        taken_bytes[stream_id] += len(payload)
    assert min(taken_bytes.values()) > MIB
    assert len(endless) == 3
    await client.close()


async def test_a_method_that_begins_while_the_socket_is_full_is_told_so(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if somebody else was told before, who waited with the call."""
    _, endless = offer(serving)
    admission = LateAdmission()
    monkeypatch.setattr(serving.door, "admission", admission)
    client = await small_client(serving)
    client.send(ask(1, ENDLESS) + b"".join(large(stream_id) for stream_id in range(3, 20, 2)))
    (connection,) = serving.door.connections
    await until(lambda: connection.is_full, "connection is not full")
    admission.let_in()
    assert endless[0].is_paused
    await client.close()


async def test_as_many_calls_as_there_may_be_can_be_cancelled_at_once(start: StartServing) -> None:
    serving = await start(max_streams=3_000)
    client = await serving.raw()
    ids = range(1, 6_000, 2)
    client.send(frame(SETTINGS, ACK) + b"".join(ask(stream_id, CHAT) for stream_id in ids))
    client.send(b"".join(frame(RST_STREAM, 0, stream_id, bytes(4)) for stream_id in ids) + MARK)
    kinds: list[int] = []
    while PING not in kinds:
        taken = await client.take()
        assert taken is not None
        kinds.append(taken[0])
    assert GOAWAY not in kinds
    await until(lambda: len(serving.echo.causes) == len(ids), "not every call ended")
    await client.close()


async def test_an_encoding_that_nobody_knows_is_refused_however_its_body_comes(serving: Serving) -> None:
    client = await serving.raw()
    body, deflate = encode_message(b"ab"), (b"grpc-encoding", b"deflate")
    client.send(ask(1, SAY, deflate) + frame(DATA, END_STREAM, 1, body))
    client.send(ask(3, SAY, deflate) + frame(DATA, 0, 3, body[:3]) + frame(DATA, END_STREAM, 3, body[3:]))
    for stream_id in (1, 3):
        _, flags, taken_id, block = await client.take_kind(HEADERS)
        assert (taken_id, flags & END_STREAM) == (stream_id, END_STREAM)
        assert b"grpc-accept-encoding" in block
    client.send(say(5, b"x"))
    assert (await client.take_kind(DATA))[2] == 5
    await client.close()


async def test_what_is_too_large_is_told_by_its_code_and_in_the_log(start: StartServing) -> None:
    serving = await start(max_message_bytes=KIB)
    with capture_logs() as lines, pytest.raises(grpc.aio.AioRpcError) as caught:
        await unary_unary(serving.channel(), SAY)(bytes(2 * KIB), timeout=TIMEOUT_S)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(caught.value.details()).startswith("too-large: ")
    assert [line["event"] for line in lines] == ["call refused"]
