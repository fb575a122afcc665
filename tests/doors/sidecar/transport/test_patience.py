"""Clients that take their time: each wait has an end, and who waits too long is gone."""

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.doors.sidecar.transport.conftest import StartServing
from tests.doors.sidecar.transport.serving import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    TIMEOUT_S,
    WAIT,
    frame,
)
from tests.doors.sidecar.transport.test_flow import KIB, count, small_client
from tests.doors.sidecar.transport.test_frames import ask, say
from tests.support.waiting import until


async def test_who_says_nothing_is_cut(start: StartServing) -> None:
    serving = await start(connect_timeout_s=0.3)
    client = await serving.raw(is_greeting=False)
    assert await asyncio.wait_for(client.reader.read(), TIMEOUT_S) == b""
    assert not serving.door.connections
    await client.close()


async def test_who_says_its_preface_slowly_is_cut(start: StartServing) -> None:
    serving = await start(connect_timeout_s=0.5)
    client = await serving.raw(is_greeting=False)
    for byte in PREFACE[:10]:
        client.send(bytes((byte,)))
        await asyncio.sleep(0.05)
    assert await asyncio.wait_for(client.reader.read(), TIMEOUT_S) is not None
    assert not serving.door.connections
    await client.close()


async def test_who_never_takes_our_settings_is_cut(start: StartServing) -> None:
    serving = await start(connect_timeout_s=0.3)
    client = await serving.raw()
    with capture_logs() as logged:
        await client.take_all()
    assert [line["event"] for line in logged] == ["connection closed"]
    assert not serving.door.connections
    await client.close()


async def test_a_silent_client_is_asked_and_stays_if_it_answers(start: StartServing) -> None:
    serving = await start(ping_s=0.5, connect_timeout_s=1.0)
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK))
    for _ in range(2):
        _, flags, _, payload = await client.take_kind(PING)
        assert not flags & ACK
        client.send(frame(PING, ACK, 0, payload))
    assert len(serving.door.connections) == 1
    await client.close()


async def test_a_client_that_gives_no_sign_of_life_is_cut(start: StartServing) -> None:
    serving = await start(ping_s=0.5, connect_timeout_s=1.0)
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK) + ask(1, WAIT) + frame(DATA, END_STREAM, 1, bytes(5)))
    await client.take_all()
    assert [cause.name for cause in serving.echo.causes] == ["LOST"]
    await client.close()


async def test_a_client_without_calls_is_asked_to_go(start: StartServing) -> None:
    serving = await start(idle_s=0.5, connect_timeout_s=1.0)
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK))
    await client.take_kind(GOAWAY)
    for _ in range(2):
        _, _, _, payload = await client.take_kind(PING)
        client.send(frame(PING, ACK, 0, payload))
    assert [kind for kind, *_ in await client.take_all()] == [GOAWAY]
    await client.close()


async def test_who_reads_nothing_for_long_is_cut(start: StartServing) -> None:
    serving = await start(ping_s=0.5, connect_timeout_s=1.0)
    client = await small_client(serving)
    client.send(count(1, 20_000, KIB))
    with capture_logs() as logged:
        await until(lambda: not serving.door.connections, "a connection is still open", every_s=0.05)
    assert [line["detail"] for line in logged] == ["it reads nothing"]
    assert [cause.name for cause in serving.echo.causes] == ["LOST"]
    await client.close()


async def test_an_answer_that_nobody_reads_is_given_up(
    start: StartServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.doors.sidecar.transport.timeouts.UNREAD_RESPONSE_S", 0.5)
    serving = await start()
    client = await serving.raw()
    client.send(frame(SETTINGS, ACK, 0) + frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0"))  # no room at all
    client.send(say(1, b"x"))
    _, _, stream_id, _ = await client.take_kind(RST_STREAM)
    assert stream_id == 1
    (connection,) = serving.door.connections
    assert connection.is_idle
    await client.close()
