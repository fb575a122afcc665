"""Clients made with grpcio, of both kinds, find what they expect of any server."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from penstock.doors.sidecar.transport.method import EndCause
from tests.doors.sidecar.transport.serving import (
    CHAT,
    COUNT,
    FAIL,
    HOLD,
    REFUSE,
    SAY,
    SUM,
    TELL,
    TIMEOUT_S,
    WAIT,
    Holding,
    Serving,
    stream_stream,
    stream_unary,
    unary_stream,
    unary_unary,
)
from tests.support.waiting import until

MB = 1_000_000


async def test_messages_come_back_in_order(serving: Serving) -> None:
    say = unary_unary(serving.channel(), SAY)
    answers = await asyncio.gather(*(say(b"%d" % number, timeout=TIMEOUT_S) for number in range(200)))
    assert answers == [b"%d" % number for number in range(200)]


async def test_a_client_in_threads_is_answered(serving: Serving) -> None:
    def ask() -> list[bytes]:
        with grpc.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
            say: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SAY)
            return [say(b"%d" % number, timeout=TIMEOUT_S) for number in range(50)]

    assert await asyncio.to_thread(ask) == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("size", [0, 1, 16_384, MB, 4 * MB])
async def test_a_message_of_any_allowed_size_comes_back(serving: Serving, size: int) -> None:
    say = unary_unary(serving.channel(("grpc.max_receive_message_length", -1)), SAY)
    assert await say(bytes(size), timeout=TIMEOUT_S) == bytes(size)


async def test_a_message_that_is_too_large_is_refused_and_the_next_is_not(serving: Serving) -> None:
    say = unary_unary(serving.channel(), SAY)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await say(bytes(5 * MB), timeout=TIMEOUT_S)
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await say(b"small", timeout=TIMEOUT_S) == b"small"


async def test_large_messages_at_the_same_time_do_not_wait_for_one_another(serving: Serving) -> None:
    say = unary_unary(serving.channel(("grpc.max_receive_message_length", -1)), SAY)
    answers = await asyncio.gather(
        *(say(bytes([number]) * 3 * MB, timeout=TIMEOUT_S) for number in range(10))
    )
    assert [answer[:1] for answer in answers] == [bytes([number]) for number in range(10)]


async def test_a_compressed_message_is_understood(serving: Serving) -> None:
    say = unary_unary(serving.channel(), SAY)
    compression = grpc.Compression.Gzip
    assert await say(bytes(50_000), timeout=TIMEOUT_S, compression=compression) == bytes(50_000)


async def test_a_compression_that_nobody_knows_is_told(serving: Serving) -> None:
    say = unary_unary(serving.channel(), SAY)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await say(bytes(50_000), timeout=TIMEOUT_S, compression=grpc.Compression.Deflate)
    assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_method_that_does_not_exist_is_told(serving: Serving) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await unary_unary(serving.channel(), "/test.Echo/Nothing")(b"", timeout=TIMEOUT_S)
    assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "/test.Echo/Nothing" in (refusal.value.details() or "")


async def test_a_status_arrives_with_its_text(serving: Serving) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await unary_unary(serving.channel(), REFUSE)("nichts gefunden, 100 % ä".encode(), timeout=TIMEOUT_S)
    assert refusal.value.code() is grpc.StatusCode.NOT_FOUND
    assert refusal.value.details() == "nichts gefunden, 100 % ä"


async def test_a_method_that_fails_ends_its_own_call_only(serving: Serving) -> None:
    channel = serving.channel()
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await unary_unary(channel, FAIL)(b"", timeout=TIMEOUT_S)
    assert refusal.value.code() is grpc.StatusCode.INTERNAL
    assert "mistake" not in (refusal.value.details() or "")
    assert await unary_unary(channel, SAY)(b"still here", timeout=TIMEOUT_S) == b"still here"


async def test_too_much_metadata_ends_its_call_and_no_other(serving: Serving) -> None:
    tell = unary_unary(serving.channel(), TELL)
    large = tuple((f"name-{number}", "x" * 1_000) for number in range(20))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await tell(b"", timeout=TIMEOUT_S, metadata=large)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await tell(b"", timeout=TIMEOUT_S)


async def test_metadata_reaches_the_method(serving: Serving) -> None:
    metadata = (("some-name", "a value"), ("other-bin", b"\x00\xff"), ("some-name", "another"))
    tell = unary_unary(serving.channel(), TELL)
    told = (await tell(b"", timeout=TIMEOUT_S, metadata=metadata)).decode()
    for entry in metadata:
        assert repr(entry) in told
    assert "grpc-timeout" not in told


async def test_a_call_that_is_cancelled_ends_at_the_server(serving: Serving) -> None:
    call = unary_unary(serving.channel(), WAIT)(b"", timeout=TIMEOUT_S)
    await until(lambda: serving.echo.waiting, "no call is waiting")
    call.cancel()
    await asyncio.wait_for(serving.echo.has_ended.wait(), TIMEOUT_S)
    assert serving.echo.causes == [EndCause.CANCELLED]
    assert serving.echo.waiting[0].is_over


async def test_a_deadline_ends_a_call_at_the_server_too(serving: Serving) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await unary_unary(serving.channel(), WAIT)(b"", timeout=0.2)
    assert refusal.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(serving.echo.has_ended.wait(), TIMEOUT_S)
    assert serving.echo.causes[0] in (EndCause.DEADLINE, EndCause.CANCELLED)  # whoever was first


async def test_what_is_said_to_a_call_that_is_over_goes_nowhere(serving: Serving) -> None:
    channel = serving.channel()
    call = unary_unary(channel, WAIT)(b"", timeout=TIMEOUT_S)
    await until(lambda: serving.echo.waiting, "no call is waiting")
    call.cancel()
    await asyncio.wait_for(serving.echo.has_ended.wait(), TIMEOUT_S)
    serving.echo.waiting[0].respond(b"too late")
    assert await unary_unary(channel, SAY)(b"in time", timeout=TIMEOUT_S) == b"in time"


async def test_a_stream_of_answers_arrives_in_order(serving: Serving) -> None:
    call = unary_stream(serving.channel(), COUNT)(b"3000 100", timeout=TIMEOUT_S)
    numbers = [int.from_bytes(message[:8], "big") async for message in call]
    assert numbers == list(range(3000))


async def test_twenty_streams_on_one_connection_arrive_whole(serving: Serving) -> None:
    channel = serving.channel()

    async def count() -> int:
        call = unary_stream(channel, COUNT)(b"500 1000", timeout=TIMEOUT_S)
        return len([message async for message in call])

    assert await asyncio.gather(*(count() for _ in range(20))) == [500] * 20
    assert len(serving.door.connections) == 1


async def test_a_stream_of_requests_is_taken(serving: Serving) -> None:
    async def messages() -> AsyncIterator[bytes]:
        for number in range(500):
            yield bytes(number)

    answer = await stream_unary(serving.channel(), SUM)(messages(), timeout=TIMEOUT_S)
    assert answer == b"500 %d" % sum(range(500))


async def test_both_sides_can_talk_at_the_same_time(serving: Serving) -> None:
    call = stream_stream(serving.channel(), CHAT)(timeout=TIMEOUT_S)
    for number in range(50):
        await call.write(b"%d" % number)
        assert await call.read() == b"%d" % number
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


async def test_a_handler_that_takes_no_messages_gets_none_until_it_does(serving: Serving) -> None:
    call = stream_unary(serving.channel(), HOLD)(timeout=TIMEOUT_S)
    for number in range(10):
        await call.write(b"%d" % number)
    await call.done_writing()
    await until(lambda: serving.echo.handlers, "no call was received")
    handler = serving.echo.handlers[0]
    assert isinstance(handler, Holding)
    await asyncio.sleep(0.2)
    assert handler.received == [b"0"]
    while len(handler.received) < 10 or not handler.call.is_over:
        handler.call.resume_reading()
        await asyncio.sleep(0.01)
    assert await call == b"10"
    assert handler.received == [b"%d" % number for number in range(10)]
