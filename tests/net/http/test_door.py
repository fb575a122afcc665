"""The listener as a door: its ports, what belongs on which, handing over, draining, figures."""

import asyncio

import pytest

from penstock.errors import InvalidConfig
from penstock.net.http import HttpSettings
from penstock.net.http.door import URGE_INTERVAL_S
from penstock.net.http.timeouts import GRACE_S, HURRY_S
from tests.net.http.serving import TIMEOUT_S, House, get, post, request
from tests.support.clock import ManualClock
from tests.support.waiting import until

UPGRADE = (
    "Connection: keep-alive, Upgrade",
    "Upgrade: WebSocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


async def test_it_listens_on_every_port_of_the_list(house: House) -> None:
    await house.open(port=(0, 0))
    first, second = house.door.ports()
    assert first != second
    for port in (first, second):
        assert (await house.ask(get(), port=port)).status == 200
    assert house.door.addresses() == [f"http://127.0.0.1:{first}", f"http://127.0.0.1:{second}"]


def test_it_listens_on_8080_unless_it_is_told_otherwise() -> None:
    assert (HttpSettings().port, HttpSettings().tls_port, HttpSettings().admin_port) == ((8080,), None, None)


async def test_tls_needs_a_certificate(house: House) -> None:
    with pytest.raises(InvalidConfig, match=r"http\.tls_port: tls\.certificate_file is not set"):
        await house.open(tls_port=0)


async def test_without_a_port_it_is_not_wanted(house: House) -> None:
    await house.open(port=())
    assert not house.door.is_wanted
    assert house.door.addresses() == []


async def test_a_port_in_use_is_told_with_its_setting(house: House) -> None:
    await house.open()
    with pytest.raises(InvalidConfig, match=r"http\.port: cannot listen on"):
        await house.open(port=(house.door.ports()[0],))


async def test_networks_of_proxies_are_checked(house: House) -> None:
    with pytest.raises(InvalidConfig, match=r"http\.proxies"):
        await house.open(proxies=("nonsense",))


# The admin port


async def test_what_is_for_admins_is_on_their_port_and_nowhere_else(house: House) -> None:
    await house.open(admin_port=0)
    main, admin = house.door.ports()
    for path in ("/figures", "/app/admin", "/app/admin/x"):
        assert (await house.ask(get(path), port=main)).status == 404
        assert (await house.ask(get(path), port=admin)).status == 200
    for path in ("/hot", "/app/x", "/app/administrator"):
        assert (await house.ask(get(path), port=main)).status == 200
        assert (await house.ask(get(path), port=admin)).status == 404
    for port in (main, admin):
        assert (await house.ask(get("/health"), port=port)).status == 200


@pytest.mark.parametrize(
    "path", ["/app%2Fadmin", "/%61pp/admin", "/app/admin%2Fx", "http://localhost/app/admin"]
)
async def test_no_spelling_gets_around_the_admin_port(house: House, path: str) -> None:
    await house.open(admin_port=0)
    assert (await house.ask(get(path), port=house.door.ports()[0])).status == 404


async def test_an_admin_port_with_tls_needs_a_certificate(house: House) -> None:
    with pytest.raises(InvalidConfig, match=r"http\.admin_tls: tls\.certificate_file is not set"):
        await house.open(admin_port=0, admin_tls=True)


async def test_without_an_admin_port_everything_is_everywhere(house: House) -> None:
    await house.open()
    assert (await house.ask(get("/figures"))).status == (await house.ask(get("/app/admin"))).status == 200


# Handing over


async def test_a_socket_is_handed_over_with_its_head_and_what_came_behind_it(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/hot") + get("/socket?x=1", *UPGRADE, "X-Key: K") + b"\x00\x01rest")
    assert (await peer.answer()).status == 200
    await until(lambda: house.taken, "no upgrade was taken", every_s=0)
    [(head, rest, transport, who)] = house.taken
    assert head.startswith(b"GET /socket?x=1 HTTP/1.1\r\nhost: localhost\r\n")
    assert b"\r\nx-key: K\r\n" in head
    assert head.endswith(b"\r\n\r\n")
    assert rest == b"\x00\x01rest"
    assert who.host == "127.0.0.1"
    transport.write(b"something else")
    assert await peer.reader.readexactly(14) == b"something else"
    assert house.door.connections == set()
    assert house.door.figures()["connections_handed_over"] == 1


@pytest.mark.parametrize(
    "data",
    [
        get("/app/x", *UPGRADE),
        request("POST", "/socket", *UPGRADE),
    ],
)
async def test_whatever_asks_for_no_socket_that_we_have_stays_here(house: House, data: bytes) -> None:
    await house.open()
    peer = await house.connect()
    assert (await peer.ask(data)).status == 200
    assert (await peer.ask(get())).status == 200
    assert house.taken == []


async def test_a_socket_is_not_for_the_admin_port(house: House) -> None:
    await house.open(admin_port=0)
    assert (await house.ask(get("/socket", *UPGRADE), port=house.door.ports()[1])).status == 404


async def test_a_socket_that_cannot_be_taken_over_is_closed(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    house.routes.upgrade("/socket", fail)
    await house.open()
    peer = await house.connect()
    await peer.send(get("/socket", *UPGRADE))
    assert await peer.is_cut()
    assert "connection not handed over" in capsys.readouterr().out


# Draining


async def test_who_waits_between_requests_is_sent_away_soon(house: House) -> None:
    await house.open()
    used, fresh = await house.connect(), await house.connect()
    assert (await used.ask(get())).status == 200
    await until(lambda: len(house.door.connections) >= 2, "fewer than 2 connections", every_s=0)
    await house.door.close()
    assert house.door.is_draining
    assert await used.rest() == await fresh.rest() == b""


async def test_a_request_that_was_on_its_way_is_answered_and_not_reset(house: House) -> None:
    await house.open()
    peers = [await house.connect() for _ in range(2)]
    for peer in peers:
        assert (await peer.ask(get())).status == 200
    await house.door.close()
    for _ in range(10):  # time enough to cut them
        await asyncio.sleep(0)
    refused = await peers[0].ask(get("/hot"))
    assert (refused.status, refused.headers["connection"]) == (503, "close")
    health = await peers[1].ask(get("/open"))
    assert (health.status, health.headers["connection"]) == (200, "close")
    for peer in peers:
        assert await peer.rest() == b""


async def test_who_sends_when_it_is_sent_away_sees_an_end_and_no_reset(house: House) -> None:
    clock = ManualClock()
    await house.open(clock=clock)
    peer = await house.connect()
    assert (await peer.ask(get())).status == 200
    await house.door.close()
    clock.advance(GRACE_S + 0.01)
    assert await peer.rest() == b""
    await peer.send(get())
    await until(
        lambda: house.broker.counters.bytes_received >= 2 * len(get()),
        "not all bytes were received",
        every_s=0,
    )  # it is still read, or the peer would be reset
    assert len(house.door.connections) == 1


async def test_half_a_head_is_told_at_once_and_half_a_body_soon(house: House) -> None:
    clock = ManualClock()
    await house.open(clock=clock)
    in_head, in_body, in_app_body = [await house.connect() for _ in range(3)]
    halves = get()[:-1], post("/hot", b"abc")[:-1], post("/app/x", b"abc")[:-1]
    for peer, half in zip((in_head, in_body, in_app_body), halves, strict=True):
        await peer.send(half)
    await house.has_read(sum(map(len, halves)))
    await house.door.close()
    assert (await in_head.answer()).status == 503
    assert await in_head.rest() == b""
    clock.advance(HURRY_S - 0.5)
    assert (await in_body.ask(b"c")).status == 200
    clock.advance(0.6)
    assert (await in_app_body.answer()).status == 503
    assert await in_app_body.rest() == b""


async def test_who_reads_nothing_of_its_answers_is_cut_soon(house: House) -> None:
    clock = ManualClock()
    await house.open(clock=clock)
    peer = await house.connect(is_slow=True)
    await peer.send(get("/huge") * 20)
    await until(
        lambda: any(each.is_full for each in house.door.connections), "no connection was full", every_s=0
    )
    await house.door.close()
    clock.advance(HURRY_S + 0.1)
    await until(lambda: not house.door.connections, "a connection is still open")


async def test_who_does_not_close_its_side_is_cut_soon(house: House) -> None:
    clock = ManualClock()
    await house.open(clock=clock)
    silent = await house.connect()
    assert (await silent.ask(get())).status == 200
    await house.door.close()
    for _ in range(2):
        assert len(house.door.connections) == 1
        clock.advance(GRACE_S + 0.01)
        assert await silent.rest() == b""
        await asyncio.sleep(2 * URGE_INTERVAL_S)
    assert house.door.connections == set()


async def test_while_it_drains_only_the_open_paths_are_answered(house: House) -> None:
    await house.open()
    [port] = house.door.ports()
    await house.door.close()
    health = await (await house.connect()).ask(get("/open"))
    assert (health.status, health.headers["connection"]) == (200, "close")
    for asked in (get("/hot"), post("/hot", b"abc"), get("/app"), get("/socket", *UPGRADE)):
        peer = await house.connect()
        refused = await peer.ask(asked)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert await peer.rest() == b""
    assert house.seen == [("GET", "/open", b"", None, "")]
    assert house.taken == []
    await house.door.finish(5)
    with pytest.raises(ConnectionRefusedError):
        await house.connect(port=port)


async def test_running_requests_finish_and_are_told_that_it_was_the_last(house: House) -> None:
    await house.open()
    hot, app, half = await house.connect(), await house.connect(), await house.connect()
    await hot.send(get("/later"))
    await app.send(get("/app/wait"))
    await half.send(post("/hot", b"abc")[:-1])
    await house.is_held.wait()
    await house.has_started.wait()
    await house.has_read(len(get("/later")) + len(get("/app/wait")) + len(post("/hot", b"abc")) - 1)
    await house.door.close()
    house.held[0].respond(200, b"late")
    house.may_go_on.set()
    await half.send(b"c")
    for peer in (hot, app, half):
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await peer.rest() == b""
    await asyncio.wait_for(house.door.finish(60), TIMEOUT_S)


async def test_a_connection_ends_with_its_last_answer_whatever_the_order_of_answers(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later") * 2)
    await until(lambda: len(house.held) >= 2, "fewer than 2 requests were received", every_s=0)
    await house.door.close()
    for held in reversed(house.held):
        held.respond(200, b"late")
    assert [(await peer.answer()).body for _ in range(2)] == [b"late", b"late"]
    assert await peer.rest() == b""


async def test_what_does_not_finish_in_time_is_cut(house: House) -> None:
    await house.open()
    hot, app = await house.connect(), await house.connect()
    await hot.send(get("/later"))
    await app.send(get("/app/forever"))
    await house.is_held.wait()
    await house.has_started.wait()
    await house.door.close()
    await house.door.finish(0.01)
    assert await hot.is_cut()
    assert await app.is_cut()
    assert house.held[0].is_disconnected


# Figures


async def test_requests_answers_and_bytes_are_counted(house: House) -> None:
    await house.open()
    peer = await house.connect()
    data = get() + get("/app/x") + get("/refused") + get("/broken") + request("DELETE", "/hot")
    await peer.send(data)
    for _ in range(5):
        await peer.answer()
    figures = house.door.figures()
    assert figures == {
        "requests": 5,
        "responses_2xx": 2,
        "responses_3xx": 0,
        "responses_4xx": 2,
        "responses_5xx": 1,
        "connections": 1,
        "connections_total": 1,
        "connections_handed_over": 0,
    }
    counters = house.broker.counters
    assert counters.bytes_received == len(data)
    assert counters.bytes_sent > 5 * 100
