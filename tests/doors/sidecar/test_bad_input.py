"""Bad input gets a coded status at its own call, and nobody else notices."""

from typing import Any

import grpc
import pytest

from penstock.app import Server
from penstock.core.settings import SessionSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.wire.sidecar.messages import nexusd
from tests.doors.serving import Start
from tests.doors.sidecar.calling import TIMEOUT_S, Client, refusal
from tests.doors.sidecar.transport.serving import stream_stream, unary_unary
from tests.support.waiting import until

INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
NOT_UTF8 = b"\x0a\x02\xff\xfe"
"""A message whose first field is text that is none."""
MIB = 1024 * 1024

PUBLISHES: dict[str, tuple[Any, grpc.StatusCode, str]] = {
    "empty topic": (nexusd.PublishRequest(), INVALID, "invalid-topic"),
    "wildcard": (nexusd.PublishRequest(topic="a/#"), INVALID, "invalid-topic"),
    "single wildcard": (nexusd.PublishRequest(topic="a/+/b"), INVALID, "invalid-topic"),
    "null character": (nexusd.PublishRequest(topic="a\0"), INVALID, "invalid-topic"),
    "long topic": (nexusd.PublishRequest(topic="a" * 5_000), INVALID, "invalid-topic"),
    "deep topic": (nexusd.PublishRequest(topic="a/" * 500), INVALID, "invalid-topic"),
    "negative ttl": (nexusd.PublishRequest(topic="a", ttl_ms=-1), INVALID, "invalid-request"),
    "endless ttl": (nexusd.PublishRequest(topic="a", ttl_ms=2**62), INVALID, "invalid-request"),
    "null in content type": (nexusd.PublishRequest(topic="a", content_type="\0"), INVALID, "invalid-request"),
    "long correlation id": (
        nexusd.PublishRequest(topic="a", correlation_id="x" * 70_000),
        EXHAUSTED,
        "too-large",
    ),
    "payload too large": (
        nexusd.PublishRequest(topic="a", payload=bytes(3968 * 1024 + 1)),
        EXHAUSTED,
        "too-large",
    ),
    "invalid utf-8": (NOT_UTF8, INVALID, "invalid-request"),
    "no message": (b"\xff\xff\xff", INVALID, "invalid-request"),
}
SUBSCRIBES: dict[str, tuple[Any, str]] = {
    "no topics": (nexusd.SubscribeRequest(), "invalid-request"),
    "empty topic": (nexusd.SubscribeRequest(topics=[""]), "invalid-filter"),
    "bad wildcard": (nexusd.SubscribeRequest(topics=["a", "a/#/b"]), "invalid-filter"),
    "null character": (nexusd.SubscribeRequest(topics=["a\0"]), "invalid-filter"),
    "bad share": (nexusd.SubscribeRequest(topics=["$share/g"]), "invalid-filter"),
    "negative size": (nexusd.SubscribeRequest(topics=["a"], max_buffer_size=-1), "invalid-request"),
    "invalid utf-8": (NOT_UTF8, "invalid-request"),
    "no message": (b"\x0a\x7f", "invalid-request"),
}


@pytest.mark.parametrize("case", PUBLISHES)
async def test_a_bad_message_is_refused_with_a_code(server: Server, client: Client, case: str) -> None:
    request, expected, error = PUBLISHES[case]
    code, text = await refusal(client.stub.publish(request, timeout=TIMEOUT_S))
    assert (code, text.partition(":")[0]) == (expected, error)
    assert server.broker.counters.published == 0
    assert (await client.publish("a")).success


@pytest.mark.parametrize("case", SUBSCRIBES)
async def test_a_bad_subscription_is_refused_with_a_code(server: Server, client: Client, case: str) -> None:
    request, error = SUBSCRIBES[case]
    code, text = await client.ask(request).end()
    assert (code, text.partition(":")[0]) == (INVALID, error)
    await until(lambda: not server.broker.sessions, "a session is still there")
    assert (len(server.broker.paused), server.broker.filter_count) == (0, 0)


async def test_five_megabytes_are_refused_before_they_are_read(server: Server, client: Client) -> None:
    code, _ = await refusal(client.publish("a", bytes(5_000_000)))
    assert code is EXHAUSTED
    assert (await client.publish("a")).success


async def test_a_gap_recovery_mode_that_does_not_exist_is_refused(client: Client) -> None:
    events = await client.subscribe("a")
    await client.unsubscribe(events.id, pause=True)
    request = nexusd.ResumeSubscribeRequest(subscription_id=events.id, gap_recovery_mode=7)  # type: ignore[arg-type]
    code, text = await client.ask(request).end()
    assert (code, text.partition(":")[0]) == (INVALID, "invalid-request")
    assert (await client.resume(events.id))[0].id == events.id


async def test_a_message_id_from_the_future_is_refused_and_costs_nothing(
    server: Server, client: Client
) -> None:
    events = await client.subscribe("a")
    await client.publish("a")
    (message,) = await events.messages(1)
    await client.unsubscribe(events.id, pause=True)
    request = nexusd.ResumeSubscribeRequest(
        subscription_id=events.id,
        gap_recovery_mode=nexusd.GAP_RECOVERY_REPLAY_BUFFER,
        last_message_id=message.message_id[:-3] + "fff",
    )
    code, text = await client.ask(request).end()
    assert (code, text.partition(":")[0]) == (INVALID, "invalid-cursor")
    assert (await client.resume(events.id))[0].id == events.id


async def test_negative_and_unknown_sequences_are_as_good_as_none(server: Server, client: Client) -> None:
    events = await client.subscribe("a")
    await client.publish("a", b"1")
    await events.payloads(1)
    events.call.cancel()
    await until(lambda: len(server.broker.paused), "no session was paused")
    await client.publish("a", b"2")
    again, info = await client.resume(events.id, last_sequence_per_topic={"a": -5, "other": 0})
    assert (info.gap_detected, info.missed_message_count) == (False, 0)
    assert await again.payloads(1, "replay_message") == [b"2"]


async def test_wildcards_can_be_forbidden(start: Start) -> None:
    server = await start(sidecar=SidecarSettings(port=0, wildcards=False))
    async with Client(server) as client:
        for topic in ("a/#", "+", "$share/g/a/+"):
            code, text = await client.ask(nexusd.SubscribeRequest(topics=[topic])).end()
            assert (code, text.partition(":")[0]) == (INVALID, "invalid-filter")
        assert (await client.subscribe("a")).id


async def test_too_many_topics_are_refused(start: Start) -> None:
    server = await start(sessions=SessionSettings(max_subscriptions=2))
    async with Client(server) as client:
        code, text = await client.ask(nexusd.SubscribeRequest(topics=["a", "b", "c"])).end()
        assert (code, text.partition(":")[0]) == (EXHAUSTED, "quota-exceeded")
        await until(lambda: not server.broker.sessions, "a session is still there")


async def test_too_many_subscriptions_are_refused(start: Start) -> None:
    server = await start(sessions=SessionSettings(max_sessions=1))
    async with Client(server) as client:
        await client.subscribe("a")
        code, _ = await client.ask(nexusd.SubscribeRequest(topics=["a"])).end()
        assert code is EXHAUSTED


async def test_an_unknown_method_is_unimplemented(client: Client) -> None:
    call = unary_unary(client.channel, "/nexusd.sidecar.SidecarService/Nothing")
    assert (await refusal(call(b"", timeout=TIMEOUT_S)))[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stream_without_a_request_is_refused(client: Client) -> None:
    call = stream_stream(client.channel, "/nexusd.sidecar.SidecarService/Subscribe")()
    await call.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is INVALID


async def test_a_mistake_of_ours_is_told_and_noted_once(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("mistake")

    monkeypatch.setattr(server.broker.access, "may_publish", fail)
    assert (await refusal(client.publish("a")))[0] is grpc.StatusCode.INTERNAL
    assert capsys.readouterr().out.count("call not carried out") == 1


async def test_a_mistake_of_ours_leaves_no_stream_behind(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("mistake")

    with monkeypatch.context() as failing:
        failing.setattr(server.broker.paused, "begin", fail)
        code, _ = await client.ask(nexusd.SubscribeRequest(topics=["a"])).end()
        assert code is grpc.StatusCode.INTERNAL
    await until(lambda: not server.broker.sessions, "a session is still there")
    assert server.broker.filter_count == 0


async def test_what_is_refused_has_one_line_in_the_log(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    await refusal(client.publish("a/#"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert "call refused" in lines[0]
    assert "invalid-topic" in lines[0]
