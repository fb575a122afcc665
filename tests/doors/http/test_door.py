"""The listener as a door: its ports, what belongs on which, handing over, draining, figures."""

import asyncio

import pytest

from penstock.doors.http import HttpSettings
from penstock.errors import InvalidConfig
from tests.doors.http.serving import House, get, post, request

UPGRADE = ("Connection: keep-alive, Upgrade", "Upgrade: WebSocket")


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
    with pytest.raises(InvalidConfig, match=r"http\.tls_port: there is no tls\.certificate_file"):
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


async def test_without_an_admin_port_everything_is_everywhere(house: House) -> None:
    await house.open()
    assert (await house.ask(get("/figures"))).status == (await house.ask(get("/app/admin"))).status == 200


# Handing over


async def test_a_socket_is_handed_over_with_its_head_and_what_came_behind_it(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/hot") + get("/socket?x=1", *UPGRADE, "X-Key: K") + b"\x00\x01rest")
    assert (await peer.answer()).status == 200
    while not house.taken:
        await asyncio.sleep(0)
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
        get("/socket"),
        get("/app/x", *UPGRADE),
        get("/socket", "Connection: Upgrade", "Upgrade: h2c"),
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
    assert "connection not taken over" in capsys.readouterr().out


# Draining


async def test_who_waits_between_requests_is_sent_away_at_once(house: House) -> None:
    await house.open()
    used, fresh = await house.connect(), await house.connect()
    assert (await used.ask(get())).status == 200
    while len(house.door.connections) < 2:
        await asyncio.sleep(0)
    await house.door.close()
    assert house.door.is_draining
    assert await used.rest() == await fresh.rest() == b""


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
    await asyncio.wait_for(house.door.finish(10), 5)


async def test_a_connection_ends_with_its_last_answer_whatever_the_order_of_answers(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later") * 2)
    while len(house.held) < 2:
        await asyncio.sleep(0)
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
    assert house.held[0].is_gone


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
