"""The door itself: who comes in, how it stops, and that nothing stays of who was there."""

import asyncio
import gc

import grpc
import grpc.aio
import pytest

from penstock.core.runtime.clock import SystemClock
from penstock.doors.sidecar.transport.call import Http2Call
from penstock.doors.sidecar.transport.connection import Connection
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from tests.doors.sidecar.transport.conftest import StartServing
from tests.doors.sidecar.transport.serving import (
    CHAT,
    COUNT,
    GOAWAY,
    REFUSE,
    SAY,
    SERVICE,
    TIMEOUT_S,
    WAIT,
    Serving,
    stream_stream,
    unary_stream,
    unary_unary,
)
from tests.support.waiting import until

# Coming in


async def test_the_address_says_what_is_spoken(serving: Serving) -> None:
    assert serving.door.addresses() == [f"grpc://127.0.0.1:{serving.port}"]
    assert serving.door.is_wanted


async def test_a_door_without_ports_is_not_wanted(start: StartServing) -> None:
    assert not (await start(port=None)).door.is_wanted


async def test_no_more_connections_than_allowed_come_in(start: StartServing) -> None:
    serving = await start(max_connections=2)
    clients = [await serving.raw() for _ in range(3)]
    assert await asyncio.wait_for(clients[2].reader.read(), TIMEOUT_S) == b""
    assert serving.broker.counters.connections_refused == 1
    await clients[0].close()
    await until(lambda: len(serving.door.connections) <= 1, "more than one connection is open")
    assert await unary_unary(serving.channel(), SAY)(b"x", timeout=TIMEOUT_S) == b"x"
    await clients[1].close()
    await clients[2].close()


async def test_the_guard_counts_connections_as_long_as_they_are_open(start: StartServing) -> None:
    limits = AddressLimits(AddressLimitSettings(per_address=1), SystemClock())
    serving = await start(address_limits=limits)
    first = await serving.raw()
    await first.take()
    second = await serving.raw()
    assert await asyncio.wait_for(second.reader.read(), TIMEOUT_S) == b""
    await second.close()
    await first.close()
    await until(lambda: not serving.door.connections, "a connection is still open")
    assert await unary_unary(serving.channel(), SAY)(b"x", timeout=TIMEOUT_S) == b"x"


async def test_more_calls_at_the_same_time_than_allowed_wait_for_others(start: StartServing) -> None:
    serving = await start(max_streams=2)
    say = unary_unary(serving.channel(), SAY)
    answers = await asyncio.gather(*(say(b"%d" % number, timeout=TIMEOUT_S) for number in range(50)))
    assert len(answers) == 50


# What is told of it


async def test_calls_are_counted_by_how_they_ended(serving: Serving) -> None:
    channel = serving.channel()
    await unary_unary(channel, SAY)(b"x", timeout=TIMEOUT_S)
    for path, message in ((REFUSE, b"why"), (SERVICE + "Missing", b""), (SAY, bytes(5_000_000))):
        with pytest.raises(grpc.aio.AioRpcError):
            await unary_unary(channel, path)(message, timeout=TIMEOUT_S)
    waiting = unary_unary(channel, WAIT)(b"", timeout=TIMEOUT_S)
    await until(lambda: serving.echo.waiting, "no call is waiting")
    waiting.cancel()
    await asyncio.wait_for(serving.echo.has_ended.wait(), TIMEOUT_S)
    told = {name: count for name, count in serving.door.figures().items() if count}
    assert told == {
        "calls_OK": 1,
        "calls_NOT_FOUND": 1,
        "calls_UNIMPLEMENTED": 1,
        "calls_RESOURCE_EXHAUSTED": 1,
        "calls_CANCELLED": 1,
    }


# Stopping


async def test_a_call_that_is_under_way_is_answered_while_the_door_closes(serving: Serving) -> None:
    call = unary_unary(serving.channel(), WAIT)(b"", timeout=TIMEOUT_S)
    await until(lambda: serving.echo.waiting, "no call is waiting")
    await serving.door.close()
    assert serving.offer_calls == ["drain"]
    ending = asyncio.ensure_future(serving.door.finish(TIMEOUT_S))
    await asyncio.sleep(0.1)
    serving.echo.waiting[0].respond(b"in time")
    assert await call == b"in time"
    await asyncio.wait_for(ending, TIMEOUT_S)
    assert serving.offer_calls == ["drain", "close"]
    assert not serving.door.connections


async def test_clients_without_calls_go_when_they_are_asked(serving: Serving) -> None:
    channel = serving.channel()
    await unary_unary(channel, SAY)(b"", timeout=TIMEOUT_S)
    await serving.door.close()
    await until(
        lambda: not serving.door.connections, "a connection is still open"
    )  # long before anybody is cut
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await unary_unary(channel, SAY)(b"", timeout=TIMEOUT_S)
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_clients_that_do_not_answer_are_cut_in_time(serving: Serving) -> None:
    client = await serving.raw()
    silent = await serving.raw(is_greeting=False)
    await client.take()
    await serving.door.close()
    await serving.door.finish(1.5)
    assert not serving.door.connections
    assert [kind for kind, *_ in await client.take_all()].count(GOAWAY) == 1
    assert await silent.reader.read() == b""
    await client.close()
    await silent.close()


async def test_streams_that_do_not_end_are_cut_with_their_connection(serving: Serving) -> None:
    call = stream_stream(serving.channel(), CHAT)(timeout=TIMEOUT_S)
    await call.write(b"x")
    assert await call.read() == b"x"
    await serving.door.close()
    await serving.door.finish(0.5)
    assert [cause.name for cause in serving.echo.causes] == ["LOST"]
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call.read()
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


# Nothing stays


def living(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


async def test_nothing_stays_of_two_thousand_calls(serving: Serving) -> None:
    channel = serving.channel()
    say = unary_unary(channel, SAY)
    for _ in range(9):
        await asyncio.gather(*(say(b"x", timeout=TIMEOUT_S) for _ in range(200)))
    for _ in range(100):
        call = unary_stream(channel, COUNT)(b"100 10000", timeout=TIMEOUT_S)
        await call.read()
        call.cancel()
    calls = [unary_unary(channel, WAIT)(b"", timeout=TIMEOUT_S) for _ in range(100)]
    await until(lambda: len(serving.echo.waiting) >= 100, "fewer than 100 calls are waiting")
    for each in calls:
        each.cancel()
    (connection,) = serving.door.connections
    await until(lambda: connection.is_idle, "connection is not idle")
    assert len(serving.echo.causes) >= 100
    serving.echo.waiting.clear()
    serving.echo.handlers.clear()
    assert living(Http2Call) == 0
    assert not len(serving.door.deadlines)


async def test_nothing_stays_of_two_thousand_connections(serving: Serving) -> None:
    for _ in range(20):
        clients = await asyncio.gather(*(serving.raw() for _ in range(100)))
        for number, client in enumerate(clients):
            if number % 2:
                client.send(b"\xff" * 100)
            client.writer.transport.abort()
        await until(lambda: not serving.door.connections, "a connection is still open")
    assert living(Connection) == 0
