"""The cycle of one request in the application: ASGI messages on one side, bytes on the other."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.net.http.serving import MIB, House, get, post, request
from tests.support.waiting import until

App = Callable[[Any, Any, Any], Awaitable[None]]
FAILED = re.compile(r"\[error +\] request failed")


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part(body: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def saying(*messages: dict[str, Any]) -> App:
    """An application that sends these messages, whatever it is asked."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send({**message})

    return app


async def ask(house: House, app: App, data: bytes) -> bytes:
    """Everything that one request brings, with an application of its own, until the connection ends."""
    await house.open(load_app=lambda: app)
    peer = await house.connect()
    await peer.send(data)
    return await peer.rest()


def length(size: int) -> tuple[bytes, bytes]:
    return b"Content-Length", b"%d" % size


CLOSING = ("Connection: close",)


async def test_a_response_of_known_length_has_no_chunks(house: House) -> None:
    app = saying(start(200, length(4), (b"X-Y", b"z")), part(b"ab", more=True), part(b"cd"))
    head, _, body = (await ask(house, app, get("/app/x", *CLOSING))).partition(b"\r\n\r\n")
    line, date, *lines = head.split(b"\r\n")
    assert line == b"HTTP/1.1 200 OK"
    assert date.startswith(b"date: ")
    assert lines == [b"content-length: 4", b"x-y: z", b"connection: close"]
    assert body == b"abcd"


async def test_a_response_of_unknown_length_comes_in_chunks(house: House) -> None:
    app = saying(start(), part(b"ab", more=True), part(more=True), part(memoryview(b"cde")))  # type: ignore[arg-type]
    told = await ask(house, app, get("/app/x", *CLOSING))
    assert told.count(b"transfer-encoding: chunked\r\n") == 1
    assert told.partition(b"\r\n\r\n")[2] == b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"


async def test_to_http_1_0_the_end_of_the_connection_is_the_end_of_the_response(house: House) -> None:
    app = saying(start(), part(b"ab", more=True), part(b"cd"))
    told = await ask(house, app, get("/app/x", "Connection: keep-alive", version="1.0"))
    assert b"chunked" not in told
    assert b"connection: close\r\n" in told
    assert told.partition(b"\r\n\r\n")[2] == b"abcd"


@pytest.mark.parametrize("headers", [(), (length(4),)], ids=["unknown length", "known length"])
async def test_head_has_the_headers_of_get_and_no_body(
    house: House, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    asked = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["method"])
        await saying(start(200, *headers), part(b"ab", more=True), part(b"cd"))(scope, receive, send)

    await house.open(load_app=lambda: app)
    peer = await house.connect()
    for _ in range(2):  # nothing is left on the connection
        answer = await peer.ask(request("HEAD", "/app/x"), "HEAD")
        assert answer.status == 200
        assert answer.headers.get("content-length") == ("4" if headers else None)
        assert "transfer-encoding" not in answer.headers
    assert asked == ["GET", "GET"]


@pytest.mark.parametrize(("status", "told_length"), [(204, None), (304, "7")])
async def test_a_status_without_a_body_has_none(house: House, status: int, told_length: str | None) -> None:
    await house.open(load_app=lambda: saying(start(status, length(7)), part()))
    peer = await house.connect()
    for _ in range(2):
        answer = await peer.ask(get("/app/x"))
        assert (answer.status, answer.body) == (status, b"")
        assert answer.headers.get("content-length") == told_length
        assert "transfer-encoding" not in answer.headers


async def test_framing_and_the_connection_are_the_servers_own(house: House) -> None:
    headers = [(b"Transfer-Encoding", b"gzip"), (b"Connection", b"x, Close"), length(2)]
    told = await ask(house, saying(start(200, *headers), part(b"ab")), get("/app/x"))
    assert b"gzip" not in told
    assert told.count(b"connection: close\r\n") == told.lower().count(b"connection: ") == 1
    assert told.endswith(b"content-length: 2\r\nconnection: close\r\n\r\nab")


async def test_a_status_without_a_name_is_sent(house: House) -> None:
    told = await ask(house, saying(start(299, length(0)), part()), get("/app/x", *CLOSING))
    assert told.startswith(b"HTTP/1.1 299 \r\n")


@pytest.mark.parametrize(
    "messages",
    [
        [part(b"x")],
        [{"type": "http.response.push"}],
        [start(99)],
        [start(101)],
        [start(600)],
        [start(200, (b"x", b"a\r\nb: c"))],
        [start(200, (b"x y", b"a"))],
        [start(200, (b"", b"a"))],
        [start(200, length(1), length(1))],
        [start(200, (b"content-length", b"-1"))],
        [start(200, (b"content-length", b"many"))],
    ],
)
async def test_a_head_that_cannot_be_written_costs_only_this_request(
    house: House, messages: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    await house.open(load_app=lambda: saying(*messages))
    peer = await house.connect()
    answer = await peer.ask(get("/app/x"))
    assert (answer.status, answer.json()) == (500, {"detail": "Internal server error"})
    assert (await peer.ask(get())).status == 200
    assert len(FAILED.findall(capsys.readouterr().out)) == 1


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([start(200, length(3)), part(b"ab", more=True), part(b"cd")], b"ab"),
        ([start(200, length(3)), part(b"ab", more=True), part()], b"ab"),
        ([start(204), part(b"ab")], b""),
        ([start(200, length(3)), part(b"ab", more=True), start()], b"ab"),
        ([start(), part(b"ab", more=True), {"type": "http.response.trailers"}], b"2\r\nab\r\n"),
    ],
    ids=["too much", "too little", "a body without one", "two starts", "unknown"],
)
async def test_a_mistake_after_the_head_cuts_the_connection(
    house: House, messages: list[dict[str, Any]], sent: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)
            await asyncio.sleep(0.02)  # so that what was sent is out before it is cut

    await house.open(load_app=lambda: app)
    peer = await house.connect()
    await peer.send(get("/app/x"))
    body = (await peer.reader.readuntil(b"\r\n\r\n"))[:0]
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        while True:
            body += await asyncio.wait_for(peer.reader.readexactly(1), 20)
    assert body == sent
    assert len(FAILED.findall(capsys.readouterr().out)) == 1


async def test_an_application_that_stops_half_way_cuts_the_connection(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    await house.open(load_app=lambda: saying(start(200, length(3)), part(b"ab", more=True)))
    peer = await house.connect()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await peer.ask(get("/app/x"))
    assert "request without a response" in capsys.readouterr().out


async def test_what_is_sent_after_the_end_is_ignored(house: House) -> None:
    await house.open(load_app=lambda: saying(start(200, length(2)), part(b"ab"), part(b"cd"), start()))
    peer = await house.connect()
    for _ in range(2):
        assert (await peer.ask(get("/app/x"))).body == b"ab"


async def test_a_failure_after_the_end_is_not_the_clients_concern(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await saying(start(200, length(2)), part(b"ab"))(scope, receive, send)
        raise RuntimeError("too late")

    await house.open(load_app=lambda: app)
    peer = await house.connect()
    for _ in range(2):
        assert (await peer.ask(get("/app/x"))).body == b"ab"
    assert not FAILED.search(capsys.readouterr().out)


async def test_continue_is_sent_when_the_application_asks_for_the_body(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(request("POST", "/app/x", "Content-Length: 3", "Expect: 100-continue"))
    assert (await peer.answer()).status == 100
    assert (await peer.ask(b"abc")).json()["body"] == 3
    assert (await peer.ask(get())).status == 200


async def test_no_continue_is_sent_into_a_response_that_has_begun(house: House) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(200, length(6)))
        await send(part(b"one", more=True))
        reading = asyncio.create_task(receive())
        await asyncio.sleep(0)
        await send(part(b"two"))
        reading.cancel()

    data = request("POST", "/app/x", "Content-Length: 3", "Expect: 100-continue")
    head, _, body = (await ask(house, app, data)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"onetwo"


async def test_without_continue_the_connection_ends_with_the_response(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(request("POST", "/app/unread", "Content-Length: 3", "Expect: 100-continue"))
    answer = await peer.answer()
    assert (answer.status, answer.headers["connection"]) == (202, "close")
    assert await peer.rest() == b""


async def test_a_body_comes_part_by_part(house: House) -> None:
    got: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        got.append(await receive())
        while got[-1]["more_body"]:
            got.append(await receive())
        await saying(start(200, length(0)), part())(scope, receive, send)

    await house.open(load_app=lambda: app)
    peer = await house.connect()
    await peer.send(request("POST", "/app/x", "Transfer-Encoding: chunked"))
    for chunk in (b"ab", b"cde"):
        await peer.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await until(lambda: bool(got) and got[-1]["body"] == chunk, "a part did not arrive")  # noqa: B023
    assert (await peer.ask(b"0\r\n\r\n")).status == 200
    assert [(each["type"], each["body"], each["more_body"]) for each in got] == [
        ("http.request", b"ab", True),
        ("http.request", b"cde", True),
        ("http.request", b"", False),
    ]


@pytest.mark.parametrize("path", ["/app/broken", "/hot", "/app/unread"])
async def test_a_body_that_is_not_read_is_discarded(house: House, path: str) -> None:
    await house.open()
    peer = await house.connect()
    body = bytes(MIB // 2)
    sending = asyncio.ensure_future(
        peer.send(request("PUT", path, f"Content-Length: {len(body)}") + body + get("/open"))
    )
    assert (await peer.answer()).status in (405, 500, 202)
    assert (await peer.answer()).json()["hot"] == "/open"
    await sending


async def test_all_that_wait_for_a_message_get_the_disconnect_at_the_end_of_the_response(
    house: House,
) -> None:
    got: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> None:
            got.append((await receive())["type"])

        await receive()
        listeners = [asyncio.ensure_future(listen()) for _ in range(3)]
        await asyncio.sleep(0)
        assert got == []
        await saying(start(200, length(0)), part())(scope, receive, send)
        await asyncio.gather(*listeners)
        await listen()

    await house.open(load_app=lambda: app)
    assert (await house.ask(get("/app/x"))).status == 200
    await until(lambda: got == ["http.disconnect"] * 4, "not all got the disconnect")


@pytest.mark.parametrize("is_amid_body", [True, False], ids=["in the body", "before the response"])
async def test_a_client_that_hangs_up_is_a_disconnect(house: House, is_amid_body: bool) -> None:
    got: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not got or got[-1] != "http.disconnect":
            got.append((await receive())["type"])
            house.has_started.set()
        await saying(start(200, length(2)), part(b"ab"))(scope, receive, send)
        got.append("sent")

    await house.open(load_app=lambda: app)
    peer = await house.connect()
    await peer.send(post("/app/x", b"abc") if not is_amid_body else post("/app/x", bytes(9))[:-3])
    await house.has_started.wait()
    await peer.close()
    await until(lambda: got[-1] == "sent", "the application did not notice")
    assert got == ["http.request", "http.disconnect", "sent"]
    assert (await house.ask(get())).status == 200


async def test_a_client_that_hangs_up_amid_a_response_ends_it(house: House) -> None:
    is_done = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        for _ in range(200):  # many times what a socket takes
            await send(part(bytes(MIB // 4), more=True))
        await send(part())
        is_done.set()

    await house.open(load_app=lambda: app)
    peer = await house.connect(is_slow=True)
    await peer.send(get("/app/x"))
    await peer.reader.readuntil(b"\r\n\r\n")
    assert not is_done.is_set()
    await peer.close()
    await asyncio.wait_for(is_done.wait(), 20)  # what it still sends goes nowhere
    assert (await house.ask(get())).status == 200
