"""Handing over a connection together with who it has proven to be, and tokens in queries."""

import asyncio
import base64
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.errors import InvalidRequest
from penstock.net.door import Peer as Address
from penstock.net.http.auth import authorization_in, parse_authorization
from penstock.net.http.request import HIGH_WATER_BYTES
from tests.net.http.serving import House, get, post, request
from tests.net.http.test_auth import ALICE, QUICK, WRONG
from tests.net.slow_access import SlowAccess, has_begun
from tests.support.waiting import until

HANDSHAKE = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", *HANDSHAKE)
TOKEN = base64.b64encode(b"alice:secret:x").decode()

Taken = tuple[bytes, bytes, asyncio.Transport, Address, Identity]


class Desk(asyncio.Protocol):
    """Takes over whom the listener knows, and what they say."""

    def __init__(self, house: House) -> None:
        self.taken: list[Taken] = []
        self.received = bytearray()
        self.has_taken = asyncio.Event()
        house.routes.upgrade("/known", self._take, needs_identity=True)
        house.routes.add("GET", "/stream", self._answer, is_stream=True)
        house.routes.add("GET", "/plain", self._answer)

    def _take(
        self, head: bytes, rest: bytes, transport: asyncio.Transport, peer: Address, identity: Identity
    ) -> None:
        transport.set_protocol(self)
        self.received += rest
        self.taken.append((head, rest, transport, peer, identity))
        self.has_taken.set()

    def data_received(self, data: bytes) -> None:
        self.received += data

    @staticmethod
    def _answer(request: object) -> None:
        request.respond(200, (request.identity.user or "nobody").encode())  # type: ignore[attr-defined]

    async def next(self) -> Taken:
        await asyncio.wait_for(self.has_taken.wait(), 20)
        self.has_taken.clear()
        return self.taken[-1]

    def close(self) -> None:
        for _, _, transport, _, _ in self.taken:
            transport.abort()


@pytest.fixture
def access(tmp_path: Path) -> FileAccess:
    (tmp_path / "passwords").write_text(f"alice:{QUICK.hash('secret:x')}\n")
    return FileAccess.load(tmp_path / "passwords", None, False)


@pytest.fixture
async def desk(house: House) -> Desk:
    return Desk(house)


async def closed(house: House) -> None:
    await until(lambda: not house.door.connections, "a connection is still open", timeout_s=20, every_s=0)


async def test_it_is_handed_over_with_who_it_is(house: House, desk: Desk, access: FileAccess) -> None:
    await house.open(access=access)
    peer = await house.connect()
    await peer.send(get("/known?x=1", *UPGRADE, ALICE, "X-Client-Id: me") + b"\x81rest")
    head, rest, transport, who, identity = await desk.next()
    assert head.startswith(b"GET /known?x=1 HTTP/1.1\r\n")
    assert rest == b"\x81rest"
    assert who.host == "127.0.0.1"
    assert (identity.user, identity.client_id) == ("alice", "me")
    transport.write(b"something else")
    assert await peer.reader.readexactly(14) == b"something else"
    assert house.door.connections == set()
    assert house.door.figures()["connections_handed_over"] == 1
    desk.close()


async def test_whose_password_was_checked_a_moment_ago_is_handed_over_at_once(
    house: House, desk: Desk, access: FileAccess
) -> None:
    await house.open(access=access)
    peer = await house.connect()
    assert (await peer.ask(get("/plain", ALICE))).body == b"alice"
    await peer.send(get("/plain", ALICE) + get("/known", *UPGRADE, ALICE) + b"rest")
    assert (await peer.answer()).body == b"alice"
    assert (await desk.next())[1] == b"rest"
    desk.close()


async def test_what_comes_while_the_password_is_checked_is_handed_over_too(house: House, desk: Desk) -> None:
    slow = SlowAccess()
    await house.open(access=slow)
    peer = await house.connect()
    rest = bytes(range(256)) * (64 * HIGH_WATER_BYTES // 256)
    peer.writer.write(get("/open") + get("/known", *UPGRADE, ALICE) + rest)
    assert (await peer.answer()).status == 200  # it does not wait for the check behind it
    await has_begun(slow)
    [connection] = house.door.connections
    await until(
        lambda: not connection.transport.is_reading(), "the connection is still read", timeout_s=20, every_s=0
    )
    slow.may_end.set()
    first = (await desk.next())[1]
    assert 0 < len(first) < len(rest)
    await until(
        lambda: len(desk.received) >= len(rest), "not all bytes were received", timeout_s=20, every_s=0
    )
    assert desk.received == rest
    desk.close()


@pytest.mark.parametrize("headers", [(), (WRONG,), ("Authorization: Digest x",)])
async def test_a_stranger_is_refused_and_hung_up_on(
    house: House, desk: Desk, access: FileAccess, headers: tuple[str, ...]
) -> None:
    await house.open(access=access)
    peer = await house.connect()
    answer = await peer.ask(get("/known", *UPGRADE, *headers) + b"GET /plain")
    assert (answer.status, answer.headers["connection"]) == (401, "close")
    assert "www-authenticate" in answer.headers
    assert await peer.rest() == b""
    assert desk.taken == []
    figures = house.door.figures()
    assert (figures["requests"], figures["responses_4xx"]) == (1, 1)


async def test_without_passwords_everybody_is_handed_over_as_nobody(house: House, desk: Desk) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/known", *UPGRADE))
    assert (await desk.next())[4] == Identity(None, "")
    desk.close()


async def test_who_goes_while_its_password_is_checked_is_not_handed_over(
    house: House, desk: Desk, access: FileAccess
) -> None:
    await house.open(access=access)
    peer = await house.connect()
    await peer.send(get("/known", *UPGRADE, ALICE))
    await peer.close()
    await house.has_read(len(get("/known", *UPGRADE, ALICE)))
    await closed(house)
    for _, _, transport, _, _ in desk.taken:  # its password may have been checked before it was seen to go
        assert transport.is_closing()
    desk.close()


async def test_while_the_server_stops_nobody_is_handed_over(
    house: House, desk: Desk, access: FileAccess
) -> None:
    await house.open(access=access)
    checked, late = await house.connect(), await house.connect()
    await checked.send(get("/known", *UPGRADE, ALICE))
    await until(
        lambda: any(connection.pipeline for connection in house.door.connections),
        "no request was received",
        timeout_s=20,
        every_s=0,
    )
    await house.door.close()
    await late.send(get("/known", *UPGRADE, ALICE))
    for peer in (checked, late):
        answer = await peer.answer()
        assert (answer.status, answer.json()["detail"]) == (503, "Server is shutting down")
        assert await peer.rest() == b""
    assert desk.taken == []


async def test_an_upgrade_to_a_path_that_is_answered_too_asks_who_it_is_in_any_case(
    house: House, desk: Desk, access: FileAccess
) -> None:
    house.routes.upgrade("/open", desk._take, needs_identity=True)
    await house.open(access=access)
    assert (await house.ask(get("/open"))).status == 200
    assert (await house.ask(get("/open", *UPGRADE))).status == 401
    peer = await house.connect()
    await peer.send(get("/open", *UPGRADE, ALICE))
    assert (await desk.next())[4].user == "alice"
    again = await house.connect()
    await again.send(get("/open", *UPGRADE, ALICE))  # now its password is known
    assert (await desk.next())[4].user == "alice"
    desk.close()


# Tokens


@pytest.mark.parametrize(
    "query",
    [
        f"access_token={TOKEN}",
        f"filter=a&access_token={quote(TOKEN)}&x",
        "access_token=alice:secret:x",
        f"access_token={quote('alice:secret:x', safe='')}",
    ],
)
async def test_a_token_in_the_query_stands_for_authorization_where_browsers_can_send_none(
    house: House, desk: Desk, access: FileAccess, query: str
) -> None:
    await house.open(access=access)
    assert (await house.ask(get(f"/stream?{query}"))).body == b"alice"
    peer = await house.connect()
    await peer.send(get(f"/known?{query}", *UPGRADE))
    assert (await desk.next())[4].user == "alice"
    desk.close()


async def test_a_token_counts_nowhere_else(house: House, desk: Desk, access: FileAccess) -> None:
    await house.open(access=access)
    for path in ("/plain", "/hot", "/app/x"):
        assert (await house.ask(get(f"{path}?access_token={TOKEN}"))).status == 401
    assert (await house.ask(post(f"/stream?access_token={TOKEN}"))).status == 401
    assert (await house.ask(request("POST", f"/known?access_token={TOKEN}", *UPGRADE))).status == 401


async def test_a_header_wins_over_a_token(house: House, desk: Desk, access: FileAccess) -> None:
    await house.open(access=access)
    assert (await house.ask(get(f"/stream?access_token={TOKEN}", WRONG))).status == 401
    assert (await house.ask(get("/stream?access_token=wrong", ALICE))).body == b"alice"


@pytest.mark.parametrize("token", ["", "x", "%ff", "YWxpY2U6d3Jvbmc=", "a b"])
async def test_a_wrong_token_is_refused(house: House, desk: Desk, access: FileAccess, token: str) -> None:
    await house.open(access=access)
    for data in (get(f"/stream?access_token={quote(token, safe='%')}"),):
        assert (await house.ask(data)).status == 401
    assert (await house.ask(get(f"/known?access_token={quote(token, safe='%')}", *UPGRADE))).status == 401


async def test_two_tokens_are_refused(house: House, desk: Desk, access: FileAccess) -> None:
    await house.open(access=access)
    twice = f"access_token={TOKEN}&access_token={TOKEN}"
    for data in (get(f"/stream?{twice}"), get(f"/known?{twice}", *UPGRADE)):
        answer = await house.ask(data)
        assert (answer.status, answer.json()["detail"]) == (400, "the query has 'access_token' twice")
    assert desk.taken == []


async def test_a_token_is_never_written_down(
    house: House, desk: Desk, access: FileAccess, capsys: pytest.CaptureFixture[str]
) -> None:
    await house.open(access=access)
    token = base64.b64encode(b"alice:wrong").decode().rstrip("=")
    for data in (
        get(f"/stream?access_token={token}"),
        get(f"/known?access_token={token}", *UPGRADE),
        get(f"/known?access_token={token}", *UPGRADE, "Origin: https://elsewhere.example"),
        get(f"/stream?access_token={token}", host="elsewhere.example"),
        get(f"/stream?access_token={token}&access_token={token}"),
    ):
        assert token not in str((await house.ask(data)).body)
    output = capsys.readouterr()
    assert "request refused" in output.out
    assert token not in output.out + output.err


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (b"", None),
        (b"filter=a", None),
        (b"my_access_token=x&filter=access_token", None),
        (b"access_token", b""),
        (b"access_token=a%2Bb/c+d==", b"a+b/c+d=="),
    ],
)
def test_a_token_is_found_as_it_was_meant(query: bytes, found: bytes | None) -> None:
    assert authorization_in(query) == (None if found is None else b"Bearer " + found)


def test_a_token_that_is_base64_with_a_plus_needs_no_escape() -> None:
    token = base64.b64encode(b"alice:~~~>>>")
    assert b"+" in token
    found = authorization_in(b"access_token=" + token)
    assert found is not None
    assert parse_authorization(found) == ("alice", b"~~~>>>")


def test_of_two_tokens_none_is_found() -> None:
    with pytest.raises(InvalidRequest):
        authorization_in(b"access_token=a&access_token=a")


# What is no handshake


@pytest.mark.parametrize(
    ("data", "status", "told"),
    [
        (get("/known"), 426, {"upgrade": "websocket"}),
        (get("/known", "Upgrade: websocket"), 426, {"upgrade": "websocket"}),
        (get("/known", "Connection: Upgrade", "Upgrade: h2c"), 426, {"upgrade": "websocket"}),
        (get("/known", *UPGRADE).replace(b"HTTP/1.1", b"HTTP/1.0"), 426, {"upgrade": "websocket"}),
        (
            get("/known", *UPGRADE).replace(b"Version: 13", b"Version: 8"),
            426,
            {"upgrade": "websocket", "sec-websocket-version": "13"},
        ),
        (get("/known", *UPGRADE[:2]), 426, {"upgrade": "websocket", "sec-websocket-version": "13"}),
        (get("/known", *UPGRADE[:3]), 400, {}),
        (get("/known", *UPGRADE[:3], "Sec-WebSocket-Key: c2hvcnQ="), 400, {}),
        (get("/known", *UPGRADE[:3], "Sec-WebSocket-Key: ?"), 400, {}),
        (get("/known", *UPGRADE, HANDSHAKE[1]), 400, {}),
    ],
    ids=[
        "plain",
        "unsaid",
        "h2c",
        "1.0",
        "version",
        "no version",
        "no key",
        "short",
        "no base64",
        "two keys",
    ],
)
async def test_what_cannot_become_a_websocket_is_refused_like_any_request(
    house: House, desk: Desk, data: bytes, status: int, told: dict[str, str]
) -> None:
    await house.open()
    answer = await house.ask(data)
    assert (answer.status, list(answer.json())) == (status, ["detail"])
    assert told.items() <= answer.headers.items()
    assert desk.taken == []
