"""How large and how slow a request may be, how many there may be, and who does not read."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from penstock.core.runtime.clock import SystemClock
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.http.asgi import PATIENCE_KEY
from penstock.net.http.connection import HttpConnection
from tests.net.http.serving import MIB, House, Peer, get, post, request
from tests.support.clock import ManualClock
from tests.support.waiting import until


async def refused(house: House, data: bytes, status: int) -> None:
    peer = await house.connect()
    answer = await peer.ask(data)
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert await peer.rest() == b""
    assert house.seen == []


# Sizes


@pytest.mark.parametrize("announced", [11, 9 * MIB, 10**18])
async def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(
    house: House, announced: int
) -> None:
    await house.open()
    path = "/small" if announced < MIB else "/hot"
    await refused(house, request("POST", path, f"Content-Length: {announced}"), 413)


async def test_a_body_at_its_limit_is_taken(house: House) -> None:
    await house.open()
    peer = await house.connect()
    assert (await peer.ask(post("/small", b"0123456789"))).status == 200
    assert (await peer.ask(post("/large", bytes(9 * MIB)))).json()["body"] == 9 * MIB
    assert (await peer.ask(post("/app/large/x", bytes(9 * MIB)))).json()["body"] == 9 * MIB
    assert (await peer.ask(post("/app/larger", bytes(9 * MIB)))).status == 413


@pytest.mark.parametrize("path", ["/small", "/app/x"])
async def test_chunks_are_counted_as_they_come(house: House, path: str) -> None:
    await house.open(max_body_bytes=10)
    chunked = request("POST", path, "Transfer-Encoding: chunked")
    peer = await house.connect()
    assert (await peer.ask(chunked + b"a\r\n0123456789\r\n0\r\n\r\n")).status == 200
    house.seen.clear()
    await refused(house, chunked + b"a\r\n0123456789\r\n1\r\nx", 413)


async def test_the_application_is_not_told_of_a_body_that_is_too_large_as_if_it_were_whole(
    house: House,
) -> None:
    await house.open(max_body_bytes=100)
    peer = await house.connect()
    await peer.send(request("POST", "/app/x", "Transfer-Encoding: chunked") + b"32\r\n" + bytes(50) + b"\r\n")
    await asyncio.sleep(0.01)
    answer = await peer.ask(b"40\r\n" + bytes(64))
    assert answer.status == 413
    assert await peer.rest() == b""


async def test_a_refused_client_that_goes_on_sending_reads_its_answer(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(request("POST", "/small", "Content-Length: 50000000"))
    peer.writer.write(bytes(5 * MIB))
    assert (await peer.answer()).status == 413


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (get("/hot", "X: " + "a" * 5_000), 431),
        (get("/hot", *[f"X-{number}: {'a' * 200}" for number in range(25)]), 431),
        (get("/hot", *["X: a"] * 100), 431),
        (get("/app?" + "a" * 3_000), 414),
        (b"GET /" + b"a" * 10_000, 414),
        (b"GET /hot HTTP/1.1\r\nX: " + b"a" * 100_000, 431),
        (b"GET /hot HTTP/1.1\r\n" + b"X" * 100_000, 431),
        (b"GET /hot HTTP/1.1\r\n" + b"X: a\r\n" * 100_000, 431),
        (b"\r\n" * 100_000, 431),
        (request("POST", "/hot", "Transfer-Encoding: chunked") + b"1;" + b"a" * 100_000, 431),
        (request("POST", "/hot", "Transfer-Encoding: chunked") + b"0\r\n" + b"X: a\r\n" * 100_000, 431),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else value,
)
async def test_a_head_that_is_too_large_is_refused(house: House, head: bytes, status: int) -> None:
    await house.open(max_head_bytes=4_096, max_target_bytes=2_048, max_headers=50)
    await refused(house, head, status)


async def test_a_head_just_below_its_limits_is_taken(house: House) -> None:
    await house.open(max_head_bytes=4_096, max_headers=50)
    peer = await house.connect()
    assert (await peer.ask(get("/hot", "X: " + "a" * 4_000))).status == 200
    assert (await peer.ask(get("/hot", *["X: a"] * 49))).status == 200


async def test_heads_up_to_64_kib_are_taken_by_default_however_they_are_cut(house: House) -> None:
    await house.open()
    peer = await house.connect()
    head = get("/hot", *[f"X-{number}: {'a' * 1_000}" for number in range(60)])
    for _ in range(5):
        await peer.send(head[:100])
        await peer.send(head[100:])
        assert (await peer.answer()).status == 200


# Time


async def wait_for_end(peer: Peer) -> bytes:
    return await peer.rest()


async def test_slow_requests_and_silent_connections_end(house: House) -> None:
    await house.open(clock=ManualClock(), request_timeout_s=10.0, keep_alive_s=75.0)
    silent = await house.connect()
    in_head = await house.connect()
    await in_head.send(get()[:-1])
    in_body = await house.connect()
    await in_body.send(post("/hot", b"abc")[:-1])
    in_app_body = await house.connect()
    await in_app_body.send(post("/app/x", b"abc")[:-1])
    idle = await house.connect()
    assert (await idle.ask(get())).status == 200
    working = await house.connect()
    await working.send(get("/later"))
    await house.is_held.wait()
    await house.has_read(len(get()) * 2 - 1 + len(post("/hot", b"abc")) + len(post("/app/x", b"abc")) - 2)
    house.advance(11.0)
    assert await silent.rest() == b""
    for slow in (in_head, in_body, in_app_body):
        assert (await slow.answer()).status == 408
        assert await slow.rest() == b""
    assert (await idle.ask(get())).status == 200
    house.advance(70.0)
    house.held[0].respond(200, b"late")
    assert (await working.answer()).body == b"late"
    house.advance(10.0)
    assert await idle.rest() == b""
    assert (await working.ask(get())).status == 200
    house.advance(76.0)
    assert await working.rest() == b""


@pytest.mark.parametrize("began", [1_000.0, 1_000.3, 1_000.999])
async def test_half_a_request_is_gone_before_its_time_is_over(house: House, began: float) -> None:
    await house.open(clock=ManualClock(monotonic=began), request_timeout_s=10.0)
    silent, half = await house.connect(), await house.connect()
    await half.send(get()[:-1])
    await house.has_read(len(get()) - 1)
    house.advance(9.999)
    assert await silent.rest() == b""
    assert (await half.answer()).status == 408


@pytest.mark.parametrize("said", [b"\r\n", b"\r\n\r\n"])
async def test_empty_lines_earn_nobody_the_time_of_those_who_have_asked(house: House, said: bytes) -> None:
    await house.open(clock=ManualClock(), request_timeout_s=10.0, keep_alive_s=75.0)
    peer = await house.connect()
    await peer.send(said)
    await house.has_read(len(said))
    house.advance(11.0)
    assert await peer.rest() == b""


async def test_a_large_body_that_keeps_coming_may_take_longer(house: House) -> None:
    await house.open(clock=ManualClock(), request_timeout_s=10.0, body_rate_bytes=1_000)
    patient, stalled = await house.connect(), await house.connect()
    for peer in (patient, stalled):
        await peer.send(request("POST", "/hot", "Content-Length: 40000") + bytes(20_000))
    await house.has_read(40_000)
    house.advance(25.0)  # the bytes so far are worth twenty seconds more than ten
    await patient.send(bytes(19_999))
    await house.has_read(59_999)
    house.advance(10.0)
    assert (await stalled.answer()).status == 408
    assert (await patient.ask(b"x")).json()["body"] == 40_000


async def test_who_reads_nothing_of_its_answers_is_cut(house: House) -> None:
    await house.open(clock=ManualClock(), write_timeout_s=30.0)
    streaming, hot = await house.connect(is_slow=True), await house.connect(is_slow=True)
    await streaming.send(get("/app/stream"))
    await hot.send(get("/huge") * 20)
    await until(
        lambda: len([each for each in house.door.connections if each.is_full]) >= 2,
        "fewer than 2 connections are full",
        every_s=0,
    )
    house.advance(29.0)
    await asyncio.sleep(0.01)
    assert len(house.door.connections) == 2
    house.advance(3.0)
    await until(lambda: not house.door.connections, "a connection is still open")


@pytest.mark.parametrize(("rate_bytes", "is_cut"), [(1024, True), (0, False)])
async def test_who_reads_a_little_now_and_then_is_cut_all_the_same(
    house: House, rate_bytes: int, is_cut: bool
) -> None:
    clock = ManualClock()
    await house.open(
        clock=clock,
        write_timeout_s=30.0,
        write_rate_bytes=rate_bytes,
        write_buffer_bytes=MIB,
        load_app=lambda: Patient(house),
    )
    _, connection = await left_unread(house, "/app/hurry")
    unread = connection.transport.get_write_buffer_size()
    sizes = iter([unread - 100, unread - 200])
    real = read_slowly(connection, sizes)
    try:
        for _ in range(2):
            clock.advance(31.0)
            due = connection.check_deadline(clock.monotonic())
            assert (due is None) is is_cut
            if is_cut:
                return
    finally:
        connection.transport = real


async def test_who_reads_slowly_but_steadily_is_left_alone(house: House) -> None:
    clock = ManualClock()
    await house.open(
        clock=clock, write_timeout_s=30.0, write_buffer_bytes=MIB, load_app=lambda: Patient(house)
    )
    _, connection = await left_unread(house, "/app/hurry")
    unread = connection.transport.get_write_buffer_size()
    sizes = iter(unread - 31 * 1024 * step for step in range(1, 10))
    real = read_slowly(connection, sizes)
    for _ in range(9):
        clock.advance(30.5)
        assert connection.check_deadline(clock.monotonic()) == clock.monotonic() + 30.0
    connection.transport = real


class SlowlyRead:
    """The transport of a peer that reads as much as a test says: the system's own buffers hide that."""

    def __init__(self, transport: Any, sizes: Iterator[int]) -> None:
        self._transport = transport
        self._sizes = sizes

    def get_write_buffer_size(self) -> int:
        return next(self._sizes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def read_slowly(connection: HttpConnection, sizes: Iterator[int]) -> asyncio.Transport:
    """Put such a transport in place, and return the real one."""
    real = connection.transport
    connection.transport = cast("asyncio.Transport", SlowlyRead(real, sizes))
    return real


class Patient:
    """An application whose answers may be left unread for five minutes, unless somebody is in a hurry."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": []}
        await send(start if scope["path"] == "/app/hurry" else {**start, PATIENCE_KEY: 300.0})
        [connection] = self._house.door.connections
        is_short = scope["query_string"] == b"short"
        for _ in range(200):
            await send({"type": "http.response.body", "body": bytes(64 * 1024), "more_body": True})
            if (
                is_short and connection.transport.get_write_buffer_size()
            ):  # all that the sockets take is there
                break
        await send({"type": "http.response.body", "body": b"end"})


async def left_unread(house: House, path: str) -> tuple[Peer, HttpConnection]:
    """A connection whose peer has asked for something and reads nothing of it."""
    peer = await house.connect(is_slow=True)
    await peer.send(get(path))
    await until(
        lambda: house.door.connections and next(iter(house.door.connections)).is_full,
        "the connection is not full",
        every_s=0,
    )
    return peer, next(iter(house.door.connections))


@pytest.mark.parametrize(("path", "patience_s"), [("/app/long", 300.0), ("/app/hurry", 30.0)])
async def test_an_answer_may_give_its_reader_more_time(house: House, path: str, patience_s: float) -> None:
    clock = ManualClock()
    await house.open(clock=clock, write_timeout_s=30.0, load_app=lambda: Patient(house))
    peer, connection = await left_unread(house, path)
    clock.advance(patience_s - 1)
    assert connection.check_deadline(clock.monotonic()) == clock.monotonic() + 1
    assert (await peer.answer()).body.endswith(b"end")
    await peer.close()
    await until(lambda: not house.door.connections, "a connection is still open", every_s=0)
    peer, connection = await left_unread(house, path)
    clock.advance(patience_s + 1)
    assert connection.check_deadline(clock.monotonic()) is None
    await until(lambda: not house.door.connections, "a connection is still open", every_s=0)


async def test_more_time_for_one_answer_is_not_for_the_next(house: House) -> None:
    clock = ManualClock()
    await house.open(clock=clock, write_timeout_s=30.0, load_app=lambda: Patient(house))
    peer, connection = await left_unread(house, "/app/long")
    await peer.answer()
    await peer.send(get("/huge") * 20)
    await until(lambda: connection.is_full, "connection is not full", every_s=0)
    clock.advance(31.0)
    assert connection.check_deadline(clock.monotonic()) is None


@pytest.mark.parametrize(("path", "is_cut"), [("/app/long?short", False), ("/app/hurry?short", True)])
async def test_more_time_counts_for_the_last_bytes_too(house: House, path: str, is_cut: bool) -> None:
    clock = ManualClock()
    await house.open(clock=clock, write_buffer_bytes=4 * MIB, load_app=lambda: Patient(house))
    peer = await house.connect(is_slow=True)
    await peer.send(request("GET", path, "Connection: close"))
    await until(
        lambda: house.door.connections and next(iter(house.door.connections))._timeouts.closing_since,
        "no connection was opened or no closing since",
        every_s=0,
    )
    [connection] = house.door.connections
    assert connection.transport.get_write_buffer_size() > 0
    clock.advance(200.0)
    assert (connection.check_deadline(clock.monotonic()) is None) == is_cut
    if is_cut:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await peer.answer()
    else:
        assert (await peer.answer()).body.endswith(b"end")


async def test_memory_stays_bounded_when_nobody_reads_a_stream(house: House) -> None:
    await house.open()
    peer = await house.connect(is_slow=True)
    await peer.send(get("/app/stream"))
    await house.has_started.wait()
    await until(
        lambda: any(each.is_full for each in house.door.connections), "no connection was full", every_s=0
    )
    before = house.streamed_bytes
    for _ in range(100):
        await asyncio.sleep(0)
    assert house.streamed_bytes - before <= 64 * 1024
    [connection] = house.door.connections
    assert connection.transport.get_write_buffer_size() < MIB
    house.may_go_on.set()
    assert (await peer.answer()).body.endswith(b"end")


async def test_large_answers_wait_for_a_client_that_does_not_read(house: House) -> None:
    await house.open()
    peer = await house.connect(is_slow=True)
    await peer.send(get("/huge") * 30)
    await until(
        lambda: any(each.is_full for each in house.door.connections), "no connection was full", every_s=0
    )
    [connection] = house.door.connections
    assert connection.transport.get_write_buffer_size() < 4 * MIB
    assert [len((await peer.answer()).body) for _ in range(30)] == [MIB] * 30


# Numbers


async def test_connections_beyond_the_limit_are_cut(house: House) -> None:
    await house.open(max_connections=2)
    first, second = await house.connect(), await house.connect()
    assert (await first.ask(get())).status == (await second.ask(get())).status == 200
    third = await house.connect()
    assert await third.is_cut()
    assert house.broker.counters.connections_refused == 1
    await first.close()
    await until(lambda: len(house.door.connections) != 2, "both connections are still open", every_s=0)
    assert (await house.ask(get())).status == 200


async def test_the_guard_of_addresses_is_asked_and_told(house: House) -> None:
    await house.open(address_limits=AddressLimits(AddressLimitSettings(per_address=1), SystemClock()))
    first = await house.connect()
    assert (await first.ask(get())).status == 200
    assert await (await house.connect()).is_cut()
    await first.close()
    await until(lambda: not house.door.connections, "a connection is still open", every_s=0)
    assert (await house.ask(get())).status == 200
