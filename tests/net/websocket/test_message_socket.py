"""An open WebSocket hands on messages and takes frames: in order, with back-pressure, until it ends."""

import asyncio
import gc
import ssl
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from websockets.frames import Opcode

from penstock.net.turn_shares import TurnShares
from penstock.net.websocket import frame_socket
from penstock.net.websocket.message_socket import MessageSocket
from penstock.wire.websocket.deflate import deflated_frame
from penstock.wire.websocket.encoding import text_frame
from tests.net.websocket.message_peers import MessageClient, MessageHall, MessageRecorder, deflated, frame
from tests.net.websocket.peers import MIB, request_bytes
from tests.net.websocket.test_byte_socket import reset
from tests.support.certificates import Authority
from tests.support.waiting import until

BINARY, CLOSE, CONT, PING, PONG, TEXT = (
    Opcode.BINARY,
    Opcode.CLOSE,
    Opcode.CONT,
    Opcode.PING,
    Opcode.PONG,
    Opcode.TEXT,
)
BYE = struct.pack("!H", 1000)


def echo(door: MessageRecorder, messages: list[str | bytes]) -> None:
    door.socket.write(b"".join(text_frame(str(message).encode()) for message in messages))


def stuff(door: MessageRecorder) -> int:
    """Write until the socket wants no more; answer how many frames that were."""
    written = 0
    while not door.is_full:
        door.socket.write(text_frame(bytes(64 * 1024)))
        written += 1
    return written


# Messages


async def test_all_messages_of_one_read_reach_the_door_in_one_call(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    client.send(*(frame(b"%d" % number) for number in range(100)), frame(b"\x00", BINARY))
    await client.fence()
    assert forum.door.batches == [[*map(str, range(100)), b"\x00"]]


async def test_messages_that_arrive_byte_by_byte_are_read(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    data = frame(b"one", is_final=False) + frame(b"?", PING) + frame(b" two", CONT) + frame(b"x" * 300)
    for byte in data:
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert (PONG, b"?") in await client.fence()
    assert forum.door.received == ["one two", "x" * 300]


async def test_what_follows_the_request_at_once_is_not_lost(forum: MessageHall) -> None:
    await forum.open()
    forum.on_messages = echo
    bird = frame(b"bird")
    client = await (await forum.connect()).shake(frame(b"early"), bird[:7])
    assert await client.read_frame() == (TEXT, b"early")
    client.send(bird[7:])
    assert await client.read_frame() == (TEXT, b"bird")


async def test_frames_are_written_as_they_are(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    socket = forum.door.socket
    large = b"x" * 3 * MIB
    socket.write(text_frame(b"one") + text_frame(b"two"))
    socket.write(b"")
    socket.write(text_frame(b"three"))
    socket.write(text_frame(b""))
    socket.write(text_frame(large))
    socket.write(text_frame(large))
    for expected in (b"one", b"two", b"three", b"", large, large):
        assert await client.read_frame() == (TEXT, expected)
    assert await client.fence() == []


async def test_the_door_can_ask_about_the_socket(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    socket = forum.door.socket
    assert socket.get_extra_info("peername") == client.writer.get_extra_info("sockname")
    assert (socket.peer.host, socket.peer.port) == client.writer.get_extra_info("sockname")
    assert (socket.get_write_buffer_size(), socket.is_deflated) == (0, False)
    socket.set_write_buffer_limits(high=5000, low=1000)
    assert socket.get_write_buffer_limits() == (1000, 5000)


# Compression


async def test_compressed_messages_go_both_ways(forum: MessageHall) -> None:
    await forum.open(deflates=True)
    client = await (await forum.connect()).shake(Sec_WebSocket_Extensions="permessage-deflate")
    assert forum.door.socket.is_deflated
    client.send(deflated(b"a" * 1_000), frame(b"plain"), deflated(b"b" * 500, cuts=[2, 3]))
    await client.fence()
    assert forum.door.received == ["a" * 1_000, "plain", "b" * 500]
    shared = deflated_frame(b"c" * 1_000)
    forum.door.socket.write(shared + text_frame(b"plain"))
    assert await client.reader.readexactly(len(shared)) == shared
    assert await client.read_frame() == (TEXT, b"plain")


async def test_who_sees_less_far_back_gets_plain_frames_and_may_compress(forum: MessageHall) -> None:
    await forum.open(deflates=True)
    offer = "permessage-deflate; server_max_window_bits=9"
    client = await (await forum.connect()).shake(Sec_WebSocket_Extensions=offer)
    assert not forum.door.socket.is_deflated
    client.send(deflated(b"a" * 1_000))
    await client.fence()
    assert forum.door.received == ["a" * 1_000]


# Pings


async def test_pings_are_answered_in_order_among_the_messages(forum: MessageHall) -> None:
    await forum.open()
    forum.on_messages = echo
    client = await forum.enter()
    client.send(
        frame(b"1", PING),
        frame(b"2", PING),
        frame(b"one"),
        frame(b"tw", is_final=False),
        frame(b"3", PING),
        frame(b"o", CONT),
        frame(b"three"),
        frame(b"4", PING),
    )
    told = [await client.read_frame() for _ in range(7)]
    assert told == [
        (PONG, b"1"),
        (PONG, b"2"),
        (TEXT, b"one"),
        (PONG, b"3"),
        (TEXT, b"two"),
        (TEXT, b"three"),
        (PONG, b"4"),
    ]
    assert forum.door.batches == [["one", "two", "three"]]  # with the pings among them, in one call


async def test_pings_of_who_reads_nothing_are_not_answered_until_it_does(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    door = forum.door
    client.transport.pause_reading()
    stuff(door)
    waiting = door.socket.get_write_buffer_size()
    client.send(*(frame(b"%d" % number, PING) for number in range(20_000)), frame(b"heard"))
    await forum.until(lambda: door.received == ["heard"])
    assert door.socket.get_write_buffer_size() <= waiting
    client.transport.resume_reading()
    while (answer := await client.read_frame())[0] is TEXT:
        pass
    assert answer == (PONG, b"19999")
    assert await client.fence() == []


# Back-pressure


async def test_the_door_learns_that_its_peer_is_slow_and_that_it_is_not_any_more(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    client.transport.pause_reading()
    written = stuff(forum.door)
    client.transport.resume_reading()
    await_free = asyncio.ensure_future(forum.until(lambda: not forum.door.is_full))
    for _ in range(written):
        assert (await client.read_frame())[0] is TEXT
    await await_free


async def test_a_door_that_reads_nothing_gets_nothing(forum: MessageHall) -> None:
    await forum.open()
    forum.on_messages = lambda door, messages: door.socket.pause_reading()
    client = await forum.enter()
    client.send(frame(b"first"))
    await forum.until(lambda: bool(forum.door.batches))
    assert not forum.door.socket.is_reading()
    client.send(*(frame(b"x" * 50_000) for _ in range(400)))
    await asyncio.sleep(0.05)
    assert forum.door.received == ["first"]
    assert client.writer.transport.get_write_buffer_size() > 0
    forum.on_messages = lambda door, messages: None
    forum.door.socket.resume_reading()
    await forum.until(lambda: len(forum.door.received) == 401)


# Endings


@pytest.mark.parametrize("said", [BYE, BYE + b"see you", struct.pack("!H", 4321), b""])
async def test_a_peer_that_closes_gets_its_close_back(forum: MessageHall, said: bytes) -> None:
    await forum.open()
    client = await forum.enter()
    client.send(frame(b"last words"), frame(said, CLOSE), frame(b"too late"), frame(b"?", PING))
    assert await client.read_frame() == (CLOSE, said)
    assert await client.read_rest() == b""
    assert (forum.door.received, forum.door.losses) == (["last words"], [None])


async def test_what_comes_after_the_last_word_of_a_peer_destroys_nothing(
    forum: MessageHall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_socket, "CLOSING_TIMEOUT_S", 1000)  # it is no timeout that ends this
    await forum.open()
    client = await forum.enter()
    client.send(frame(BYE, CLOSE))
    await forum.until(lambda: bool(forum.door.losses))
    client.send(bytes(MIB))  # to a closed socket it would be reset
    await client.writer.drain()
    assert await client.read_close() == (1000, b"")


async def test_a_door_that_closes_waits_for_the_answer_of_the_peer(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    socket = forum.door.socket
    socket.write(text_frame(b"bye"))
    socket.close(1008, "too slow")
    socket.close(1000)
    socket.write(text_frame(b"never sent"))
    socket.write(text_frame(b"nor this"))
    assert await client.read_frame() == (TEXT, b"bye")
    assert await client.read_frame() == (CLOSE, struct.pack("!H", 1008) + b"too slow")
    client.send(frame(b"still talking"), frame(b"there?", PING))
    await client.writer.drain()
    await asyncio.sleep(0.02)
    assert (forum.door.received, forum.door.losses, socket.is_closing()) == ([], [], False)
    client.send(frame(struct.pack("!H", 1008), CLOSE))
    assert await client.read_rest() == b""
    await forum.until(lambda: forum.door.losses == [None])


async def test_a_door_that_closes_hears_the_answer_also_if_it_did_not_read(
    forum: MessageHall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_socket, "CLOSING_TIMEOUT_S", 1000)
    await forum.open()
    client = await forum.enter()
    forum.door.socket.pause_reading()
    client.send(frame(b"unheard"))
    forum.door.socket.close()
    assert await client.read_frame() == (CLOSE, BYE)
    client.send(frame(BYE, CLOSE))
    assert await client.read_rest() == b""
    assert forum.door.received == []


async def test_a_door_that_closes_sends_what_it_wrote(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    written = stuff(forum.door)
    forum.door.socket.close(1001)
    for _ in range(written):
        assert (await client.read_frame())[0] is TEXT
    assert await client.read_frame() == (CLOSE, struct.pack("!H", 1001))
    client.send(frame(struct.pack("!H", 1001), CLOSE))
    assert await client.read_rest() == b""


@pytest.mark.parametrize("ending", ["abort", "close"])
async def test_a_door_may_end_the_connection_as_soon_as_it_is_made(forum: MessageHall, ending: str) -> None:
    await forum.open()
    forum.on_opened = lambda door: getattr(door.socket, ending)()
    client = await forum.connect()
    client.send(request_bytes("/ws"), frame(b"unheard"), frame(BYE, CLOSE))
    await forum.until(lambda: bool(forum.doors) and bool(forum.door.losses))
    assert forum.door.received == []


@pytest.mark.parametrize("ending", ["abort", "close"])
@pytest.mark.parametrize("behind", [frame(b"?", PING), b"\x83\x80", frame(b"y")], ids=["ping", "bad", "text"])
async def test_a_door_may_end_the_connection_amid_a_read(
    forum: MessageHall, ending: str, behind: bytes
) -> None:
    await forum.open()
    forum.on_messages = lambda door, messages: getattr(door.socket, ending)()
    client = await forum.enter()
    with capture_logs() as lines:
        client.send(frame(b"x"), frame(b"?", PING), frame(b"y"), behind)
        with suppress(ConnectionResetError):
            if ending == "close":
                assert await client.read_frame() == (CLOSE, BYE)
            client.writer.close()
        await forum.until(lambda: bool(forum.door.losses))
    assert len(forum.door.batches) == 1  # of the one read; nothing follows
    assert len(lines) == (ending == "close" and behind == b"\x83\x80")


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_peer_that_vanishes_is_noticed_once(forum: MessageHall, is_reset: bool) -> None:
    await forum.open()
    client = await forum.enter()
    with capture_logs() as lines:
        client.send(frame(b"begun", is_final=False))
        await client.fence()
        if is_reset:
            reset(client)
        else:
            client.writer.close()
        await forum.until(lambda: bool(forum.door.losses))
        socket = forum.door.socket
        socket.write(text_frame(b"into the void"))
        socket.close()
        socket.resume_reading()
        socket.abort()
    assert (lines, forum.door.received) == ([], [])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x01a", 1002),
        (frame(b"\xff"), 1007),
        (frame(b"\x03\xe8\xff", CLOSE), 1007),
        (frame(struct.pack("!H", 1005), CLOSE), 1002),
        (b"\x81\xff" + (256 * MIB).to_bytes(8, "big"), 1009),
    ],
    ids=["not masked", "no text", "bad reason", "bad close", "too large"],
)
async def test_a_peer_that_breaks_the_rules_can_read_why(
    forum: MessageHall, data: bytes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_socket, "CLOSING_TIMEOUT_S", 1000)  # it is no timeout that ends this
    await forum.open()
    forum.on_messages = echo
    client = await forum.enter()
    with capture_logs() as lines:
        client.send(frame(b"good"), data, bytes(MIB))  # closing in the midst of it would reset the connection
        assert await client.read_frame() == (TEXT, b"good")
        assert await client.read_close() == (code, b"")
    assert [(line["event"], line["code"]) for line in lines] == [("bad frame", code)]
    assert forum.door.losses == [None]
    forum.door.socket.write(text_frame(b"nothing more"))
    forum.door.socket.close()
    client.send(frame(b"not heard any more"))
    client.writer.close()


@pytest.mark.parametrize("ending", ["close", "close unread", "bad frame", "closed unread"])
async def test_a_peer_that_does_not_let_go_is_cut_off(
    forum: MessageHall, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_socket, "CLOSING_TIMEOUT_S", 0.05)
    await forum.open()
    client = await forum.enter()
    door = forum.door
    if "unread" in ending:
        client.transport.pause_reading()
        stuff(door)
    if "close " in ending or ending == "close":
        door.socket.close()
    else:
        client.send(frame(BYE, CLOSE) if "unread" in ending else b"\x83\x80")
    await forum.until(lambda: bool(door.losses))
    await until(
        lambda: door.socket.get_extra_info("socket") is None, "the socket is still open", every_s=0.001
    )


def count_sockets() -> int:
    return sum(isinstance(each, MessageSocket) for each in gc.get_objects())


async def test_a_connection_that_is_over_leaves_nothing_behind(forum: MessageHall) -> None:
    await forum.open()
    gc.collect()
    gc.disable()
    try:
        before = count_sockets()
        clients = [await forum.enter() for _ in range(4)]
        clients[0].send(frame(BYE, CLOSE))
        clients[1].send(frame(b"\xff"))
        clients[2].writer.transport.abort()
        forum.doors[3].socket.abort()
        for client in clients:
            with suppress(ConnectionResetError):
                await client.read_rest()
            client.writer.close()
        await forum.until(lambda: all(door.losses for door in forum.doors))
        await until(
            lambda: not any(door.socket.get_extra_info("socket") is not None for door in forum.doors),
            "a socket is still open",
            every_s=0.001,
        )
        assert count_sockets() == before + 4
        forum.doors.clear()
        for _ in range(5):
            await asyncio.sleep(0)
        assert count_sockets() == before
    finally:
        gc.enable()


# TLS


async def test_it_is_the_same_over_tls(forum: MessageHall, tmp_path: Path) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue(tmp_path, "server").both)
    await forum.listen(forum.make_entrance(limit_bytes=4 * MIB).accept, context)
    forum.on_messages = echo
    for said, data in {1007: frame(b"\xff"), 1000: frame(BYE, CLOSE)}.items():
        client = await forum.connect(authority.client_context())
        assert isinstance(client, MessageClient)
        await client.shake(frame(b"early"))
        assert await client.read_frame() == (TEXT, b"early")
        client.send(frame(b"x" * 2 * MIB))
        assert await client.read_frame() == (TEXT, b"x" * 2 * MIB)
        client.send(data)
        assert await client.read_close() == (said, b"")
    client = await forum.connect(authority.client_context())
    await client.shake()
    forum.doors[2].socket.close(1001, "bye")
    assert await client.read_frame() == (CLOSE, struct.pack("!H", 1001) + b"bye")
    client.send(frame(struct.pack("!H", 1001), CLOSE))
    assert await client.read_rest() == b""


@pytest.mark.parametrize(
    "last", [frame(BYE, CLOSE), frame(b"", BINARY)[:1] + b"\x00"], ids=["close", "not masked"]
)
async def test_peer_that_is_closed_in_a_later_turn_is_read_until_it_closes(
    forum: MessageHall, monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    monkeypatch.setattr(frame_socket, "CLOSING_TIMEOUT_S", 1000)  # it is no timeout that ends this
    await forum.open()
    client = await forum.enter()
    socket = forum.door.socket.get_extra_info("socket")
    monkeypatch.setattr(TurnShares, "is_over", lambda shares, now: True)
    client.send(frame(b"one"), last)
    await client.read_close()
    client.writer.close()
    await until(lambda: socket.fileno() < 0, "the socket is still open")
    assert forum.door.received == ["one"]


async def test_sockets_of_an_entrance_share_their_turns(forum: MessageHall) -> None:
    """Each would have a share of its own otherwise, and many of them a long turn."""
    entrance = await forum.open()
    for _ in range(2):
        await forum.enter()
    assert {id(door.socket._shares) for door in forum.doors} == {id(entrance.shares)}
