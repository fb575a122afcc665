"""A listening port with its layers, told with real sockets and real clients on both loops.

Every story ends with the same question: is anything left? No task, no open file, no guest (which a timer
would keep alive), and nothing that went through the loop's exception handler.
"""

import asyncio
import gc
import inspect
import os
import resource
import socket
import ssl
import stat
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs
from structlog.typing import EventDict

from penstock.errors import InvalidConfig
from penstock.net import listener as module
from penstock.net.door import Peer
from penstock.net.listener import Listener, PendingConnection, parse_networks
from penstock.net.log_throttle import LINES_PER_SECOND
from penstock.net.tls import Certificates, TlsSettings
from penstock.wire.proxy_protocol import SIGNATURE
from tests.support.certificates import HOST, Authority, Files
from tests.support.waiting import until

PATIENCE_S = 20.0
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
OURSELVES = parse_networks([HOST, "::1"], "proxies")
MQTT_CONNECT = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd"

Story = Callable[..., Coroutine[Any, Any, None]]


# The stage


class Caller(asyncio.BufferedProtocol):
    """A door's protocol: it has one buffer with all others in common, and says back what it hears."""

    buffer = memoryview(bytearray(65536))

    def __init__(self, peer: Peer | None) -> None:
        self.peer = peer
        self.heard = b""
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, size: int) -> None:
        data = bytes(self.buffer[:size])
        self.heard += data
        self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class Hall:
    """Listeners, who came in through them, and what was logged meanwhile."""

    def __init__(self, lines: list[EventDict]) -> None:
        self.loop = asyncio.get_running_loop()
        self.lines = lines
        self.accepted: list[Caller] = []
        self.listeners: list[Listener] = []
        self.sockets: list[socket.socket] = []
        self.errors: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _loop, context: self.errors.append(context))
        self._tasks = asyncio.all_tasks()
        self._sockets = open_sockets()

    async def listen(self, certificates: Certificates | None = None, **settings: Any) -> Listener:
        given = {"host": HOST, "port": 0, "setting": "mqtt.tls_port", "timeout_s": PATIENCE_S, **settings}
        listener = Listener(self.loop, self._make, certificates=certificates, **given)
        await listener.open()
        self.listeners.append(listener)
        return listener

    def _make(self, peer: Peer | None) -> Caller:
        self.accepted.append(Caller(peer))
        return self.accepted[-1]

    async def caller(self, number: int = 0) -> Caller:
        """Who came in as the first, or later; waits until there is one."""
        await until(lambda: len(self.accepted) > number, "no connection was accepted")
        return self.accepted[number]

    def connect(self, listener: Listener, data: bytes = b"") -> socket.socket:
        """A connection that the listener need not have accepted yet."""
        connected = socket.create_connection((HOST, listener.port), PATIENCE_S)
        self.sockets.append(connected)
        connected.sendall(data)
        return connected

    async def secure(
        self, listener: Listener, context: ssl.SSLContext, data: bytes = b"", **options: Any
    ) -> ssl.SSLSocket:
        """A connection with TLS, as seen by a client that writes and reads by itself."""
        connected = self.connect(listener, data)
        secured = await asyncio.to_thread(context.wrap_socket, connected, server_hostname=HOST, **options)
        self.sockets.append(secured)
        return secured

    async def line(self) -> EventDict:
        """The only line in the log."""
        await until(lambda: bool(self.lines), "nothing was logged")
        [line] = self.lines
        return line

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        for caller in self.accepted:
            caller.transport.abort()
        for client in self.sockets:
            client.close()
        self.sockets.clear()

    async def check_nothing_is_left(self) -> None:
        await until(lambda: asyncio.all_tasks() == self._tasks, "a task is still running")
        await until(lambda: open_sockets() <= self._sockets, "a socket is still open")
        assert all(listener.waiting == 0 for listener in self.listeners)
        self.listeners.clear()
        await until(lambda: not kept_alive(), "guests or listeners are still referenced")
        assert self.errors == []


def open_sockets() -> set[int]:
    """The sockets that this process has open, by what stays the same when a number is used again."""
    found = set()
    for number in os.listdir("/dev/fd"):  # noqa: PTH208
        with suppress(OSError):  # the list itself was open too
            status = os.fstat(int(number))
            if stat.S_ISSOCK(status.st_mode):
                found.add(status.st_ino)
    return found


def kept_alive() -> list[object]:
    """Guests and listeners that something, such as a timer, still holds on to."""
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, (PendingConnection, Listener))]


def on_both_loops(story: Story) -> Callable[..., None]:
    """Tell a story, which gets a hall as its first argument, on the loop of each kind."""

    async def tell(fixtures: dict[str, Any]) -> None:
        with capture_logs() as lines:
            hall = Hall(lines)
            try:
                await story(hall, **fixtures)
            finally:
                hall.close()
            await hall.check_nothing_is_left()

    @pytest.mark.parametrize("loop_name", LOOPS)
    @wraps(story)
    def test(loop_name: str, **fixtures: Any) -> None:
        gc.freeze()  # what was there before is no matter of this story
        with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
            runner.run(tell(fixtures))
        gc.unfreeze()

    given = list(inspect.signature(story).parameters.values())
    loop_name = inspect.Parameter("loop_name", inspect.Parameter.KEYWORD_ONLY)
    test.__signature__ = inspect.Signature([*given[1:], loop_name])
    on_each_loop: Callable[..., None] = test
    return on_each_loop


async def exchange(client: socket.socket, data: bytes) -> bytes:
    """Say something and read as much."""

    def talk() -> bytes:
        client.sendall(data)
        answer = b""
        while len(answer) < len(data) and (chunk := client.recv(65536)):
            answer += chunk
        return answer

    return await asyncio.to_thread(talk)


def reads_the_end(client: socket.socket) -> bool:
    """Wait until the other side has closed the connection, one way or another."""
    try:
        while client.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


async def is_closed(client: socket.socket) -> bool:
    return await asyncio.to_thread(reads_the_end, client)


def hello_of(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client that speaks TLS."""
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=HOST).do_handshake()
    return sent.read()


class Hand:
    """A client that decides itself what goes into one packet of the network."""

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = client
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._received, self._sent, server_hostname=HOST)

    def prepare(self) -> None:
        """Shake hands, but keep the last word."""
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.send()
                self._received.write(self._socket.recv(65536))

    def send(self) -> None:
        self._socket.sendall(self._sent.read())


def proxied(host: str, port: int, *, command: int = 0x21, tlvs: bytes = b"") -> bytes:
    """What a proxy writes before it passes a connection on."""
    address = ip_address(host)
    rest = address.packed * 2 + struct.pack(">HH", port, 8883) + tlvs
    return (
        SIGNATURE
        + bytes((command, 0x11 if address.version == 4 else 0x21))
        + struct.pack(">H", len(rest))
        + rest
    )


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def stranger() -> Authority:
    return Authority()


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Files:
    return authority.issue(tmp_path, "server")


@pytest.fixture
def certificates(server: Files) -> Certificates:
    return Certificates(TlsSettings(certificate_file=server.both))


@pytest.fixture
def ca_file(authority: Authority, tmp_path: Path) -> str:
    return authority.write(tmp_path / "ca.pem")


@pytest.fixture
def mutual(server: Files, ca_file: str) -> Certificates:
    return Certificates(
        TlsSettings(certificate_file=server.both, ca_file=ca_file, client_certificates="required")
    )


# Listening


@on_both_loops
async def test_plain_port_is_the_loops_own(hall: Hall) -> None:
    listener = await hall.listen()
    client = hall.connect(listener)
    assert await exchange(client, b"hello") == b"hello"
    assert (await hall.caller()).peer is None
    assert listener.waiting == 0


@on_both_loops
async def test_dead_peers_of_idle_connections_are_probed_for(hall: Hall, certificates: Certificates) -> None:
    for listener in (await hall.listen(), await hall.listen(certificates)):
        for listening in listener.sockets:
            assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    hall.connect(hall.listeners[0])
    accepted = (await hall.caller()).transport.get_extra_info("socket")
    with socket.socket(fileno=os.dup(accepted.fileno())) as inherited:
        assert inherited.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert inherited.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


@pytest.mark.parametrize("has_layers", [False, True])
@on_both_loops
async def test_address_is_written_as_clients_need_it(
    hall: Hall, has_layers: bool, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates if has_layers else None)
    assert listener.addresses("mqtts") == [f"mqtts://{HOST}:{listener.port}"]
    assert [found.getsockname() for found in listener.sockets] == [(HOST, listener.port)]
    listener.close()
    assert listener.addresses("mqtts") == []


@pytest.mark.parametrize("has_layers", [False, True])
@on_both_loops
async def test_port_in_use_is_told_with_its_setting(
    hall: Hall, has_layers: bool, certificates: Certificates
) -> None:
    taken = (await hall.listen()).port
    with pytest.raises(InvalidConfig) as raised:
        await hall.listen(certificates if has_layers else None, port=taken)
    assert str(raised.value) == f"mqtt.tls_port: cannot listen on {HOST}:{taken}: Address already in use"


@pytest.mark.parametrize("has_layers", [False, True])
@on_both_loops
async def test_name_that_nobody_knows_is_told_with_its_setting(
    hall: Hall, has_layers: bool, certificates: Certificates
) -> None:
    with pytest.raises(InvalidConfig, match=r"^mqtt\.tls_port: cannot listen on no\.such\.invalid:0: \w+"):
        await hall.listen(certificates if has_layers else None, host="no.such.invalid")


@on_both_loops
async def test_every_address_of_a_name_is_listened_on(hall: Hall, certificates: Certificates) -> None:
    names = await hall.loop.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
    listener = await hall.listen(certificates, host="localhost")
    found = {listening.getsockname()[0] for listening in listener.sockets}
    assert found == {name[4][0] for name in names}


@on_both_loops
async def test_after_close_nobody_is_accepted_and_who_is_inside_stays(
    hall: Hall, authority: Authority, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates)
    inside = await hall.secure(listener, authority.client_context())
    outside = [hall.connect(listener), hall.connect(listener, hello_of(authority.client_context())[:40])]
    await until(lambda: listener.waiting == 2, "there are not two waiting connections")
    port = listener.port
    listener.close()
    assert listener.waiting == 0
    assert [await is_closed(client) for client in outside] == [True, True]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))
    assert await exchange(inside, b"still here") == b"still here"
    assert hall.lines == []


@pytest.mark.parametrize("proxies", [(), OURSELVES])
@on_both_loops
async def test_close_leaves_nothing_wherever_a_guest_is_on_its_way(
    hall: Hall, proxies: Any, authority: Authority, certificates: Certificates
) -> None:
    said = (proxied("192.0.2.7", 1) if proxies else b"") + hello_of(authority.client_context())
    for turns in range(16):
        listener = await hall.listen(certificates, proxies=proxies)
        client = hall.connect(listener, said)

        def pending(at: Listener = listener) -> int:
            return at.waiting

        await until(pending, "no connection is waiting", every_s=0)
        for _ in range(turns):
            await asyncio.sleep(0)
        listener.close()
        assert await is_closed(client)
    assert hall.accepted == []


@pytest.mark.parametrize("turns", [0, 1])
@on_both_loops
async def test_handshake_that_ends_in_the_turn_of_the_close_leads_nowhere(
    hall: Hall, turns: int, authority: Authority, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates)
    client = hall.connect(listener)
    hand = Hand(client, authority.client_context())
    await asyncio.to_thread(hand.prepare)
    hand.send()
    for _ in range(turns):
        await asyncio.sleep(0)
    came_before = len(hall.accepted)
    listener.close()
    if not came_before:
        assert await is_closed(client)
    assert len(hall.accepted) == came_before


class NoFileLeft:
    """For a while, nothing more can be opened."""

    def __enter__(self) -> None:
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, self._limits[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)


@on_both_loops
async def test_when_no_file_is_left_connections_wait_until_there_is_one(
    hall: Hall, authority: Authority, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    listener = await hall.listen(certificates)
    client = hall.connect(listener)
    with NoFileLeft():
        await until(lambda: bool(hall.lines), "nothing was logged")
    assert (hall.lines[0]["event"], hall.lines[0]["log_level"]) == ("cannot accept", "warning")
    secured = await asyncio.to_thread(authority.client_context().wrap_socket, client, server_hostname=HOST)
    hall.sockets.append(secured)
    assert await exchange(secured, b"hello") == b"hello"


@on_both_loops
async def test_listener_that_closes_while_no_file_is_left_does_not_come_back(
    hall: Hall, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 3600)
    listener = await hall.listen(certificates)
    client = hall.connect(listener)
    with NoFileLeft():
        await until(lambda: bool(hall.lines), "nothing was logged")
    listener.close()
    assert await is_closed(client)


@pytest.mark.parametrize("has_layers", [False, True])
@on_both_loops
async def test_door_that_breaks_costs_only_that_connection(
    hall: Hall, has_layers: bool, authority: Authority, certificates: Certificates
) -> None:
    def break_down(peer: Peer | None) -> asyncio.BaseProtocol:
        raise RuntimeError(f"broken by {peer}")

    listener = await hall.listen(certificates if has_layers else None, admit=lambda host: True)
    listener.factory = break_down
    client = hall.connect(listener)
    if has_layers:
        hand = Hand(client, authority.client_context())
        await asyncio.to_thread(hand.prepare)
        hand.send()
    assert await is_closed(client)
    line = await hall.line()
    assert (line["event"], line["log_level"]) == ("connection not handed over", "error")
    await until(lambda: listener.waiting == 0, "a connection is still waiting")


def test_networks_are_read_and_mistakes_named() -> None:
    found = parse_networks(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"], "mqtt.proxies")
    assert [str(network) for network in found] == ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]
    for wrong in ("10.0.0.1/8", "proxy.example", ""):
        with pytest.raises(InvalidConfig, match=r"^mqtt\.proxies: "):
            parse_networks([wrong], "mqtt.proxies")


# TLS


@on_both_loops
async def test_client_with_tls_reaches_the_door(
    hall: Hall, authority: Authority, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates)
    client = await hall.secure(listener, authority.client_context())
    assert client.version() == "TLSv1.3"
    for data in (b"hello", os.urandom(300_000)):
        assert await exchange(client, data) == data
    caller = await hall.caller()
    assert caller.peer == Peer(HOST, client.getsockname()[1])
    assert listener.waiting == 0
    client.close()
    await until(lambda: caller.is_lost, "the connection was not closed")
    assert hall.lines == []


@on_both_loops
async def test_bytes_that_come_with_the_end_of_the_handshake_are_not_lost(
    hall: Hall, authority: Authority, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates)
    hand = Hand(hall.connect(listener), authority.client_context())
    await asyncio.to_thread(hand.prepare)
    hand.tls.write(b"in one go")
    hand.send()
    caller = await hall.caller()
    await until(lambda: caller.heard == b"in one go", 'heard did not become b"in one go"')


@on_both_loops
async def test_who_says_all_and_goodbye_in_one_go_is_heard(
    hall: Hall, authority: Authority, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates)
    client = hall.connect(listener)
    hand = Hand(client, authority.client_context())
    await asyncio.to_thread(hand.prepare)
    hand.tls.write(b"goodbye")
    with pytest.raises(ssl.SSLWantReadError):
        hand.tls.unwrap()
    hand.send()
    client.close()
    caller = await hall.caller()
    await until(lambda: caller.is_lost, "the connection was not closed")
    assert caller.heard == b"goodbye"


@on_both_loops
async def test_door_that_refuses_at_once_can_do_so(
    hall: Hall, authority: Authority, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Caller, "connection_made", lambda caller, transport: transport.abort())
    ignored: list[Caller] = []
    monkeypatch.setattr(hall, "accepted", ignored)
    listener = await hall.listen(certificates)
    client = await hall.secure(listener, authority.client_context())
    assert await is_closed(client)
    await until(lambda: ignored[0].is_lost, "the connection was not closed")
    ignored.clear()
    assert hall.lines == []


@on_both_loops
async def test_name_of_a_client_certificate_reaches_the_door(
    hall: Hall, authority: Authority, mutual: Certificates, tmp_path: Path
) -> None:
    alice = authority.issue(tmp_path, "alice", common_name="alice")
    listener = await hall.listen(mutual)
    client = await hall.secure(listener, authority.client_context(alice))
    assert await exchange(client, b"hello") == b"hello"
    assert (await hall.caller()).peer == Peer(HOST, client.getsockname()[1], "alice")


@on_both_loops
async def test_client_certificate_that_may_be_missing_names_only_who_has_one(
    hall: Hall, authority: Authority, server: Files, ca_file: str, tmp_path: Path
) -> None:
    alice = authority.issue(tmp_path, "alice", common_name="alice")
    listener = await hall.listen(
        Certificates(
            TlsSettings(certificate_file=server.both, ca_file=ca_file, client_certificates="optional")
        )
    )
    for number, (certificate, name) in enumerate(((alice, "alice"), (None, None))):
        client = await hall.secure(listener, authority.client_context(certificate))
        assert await exchange(client, b"hello") == b"hello"
        peer = (await hall.caller(number)).peer
        assert peer is not None
        assert peer.certificate_name == name


@pytest.mark.parametrize("way", ["reload", "reload_if_changed"])
@on_both_loops
async def test_renewed_certificate_is_for_the_next_and_leaves_the_others_alone(
    hall: Hall, way: str, authority: Authority, server: Files, certificates: Certificates, tmp_path: Path
) -> None:
    listener = await hall.listen(certificates)
    context = authority.client_context()
    old = await hall.secure(listener, context)
    assert await exchange(old, b"before") == b"before"
    Path(server.both).write_bytes(Path(authority.issue(tmp_path, "renewed").both).read_bytes())
    getattr(certificates, way)()
    new = await hall.secure(listener, context)
    assert await exchange(old, b"after") == b"after"
    assert await exchange(new, b"new") == b"new"
    assert old.getpeercert() != new.getpeercert()


@on_both_loops
async def test_authority_that_was_removed_is_no_longer_accepted(
    hall: Hall,
    authority: Authority,
    stranger: Authority,
    mutual: Certificates,
    ca_file: str,
    tmp_path: Path,
) -> None:
    listener = await hall.listen(mutual)
    context = authority.client_context(authority.issue(tmp_path, "alice"))
    old = await hall.secure(listener, context)
    assert await exchange(old, b"hello") == b"hello"
    stranger.write(Path(ca_file))
    mutual.reload()
    again = await hall.secure(listener, context, session=old.session)
    assert await is_closed(again)
    assert (await hall.line())["reason"] == "self-signed certificate in certificate chain"
    assert await exchange(old, b"still here") == b"still here"


# Who fails


def failed(line: EventDict, client: socket.socket, reason: str) -> bool:
    peer = "{}:{}".format(*client.getsockname())
    expected = {"event": "tls handshake failed", "log_level": "info", "peer": peer, "reason": reason}
    return line == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (MQTT_CONNECT, "wrong version number"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "http request"),
        (b"\x00" * 64, "wrong version number"),
        (b"\x16\x03\x01\x00\x05hello", "unexpected message"),
    ],
)
@on_both_loops
async def test_what_is_no_tls_is_one_line_in_the_log(
    hall: Hall, data: bytes, reason: str, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates)
    client = hall.connect(listener, data)
    assert await is_closed(client)
    assert failed(await hall.line(), client, reason)
    assert hall.accepted == []


@on_both_loops
async def test_client_without_a_certificate_is_refused_where_it_needs_one(
    hall: Hall, authority: Authority, mutual: Certificates
) -> None:
    listener = await hall.listen(mutual)
    client = await hall.secure(listener, authority.client_context())
    assert await is_closed(client)
    assert failed(await hall.line(), client, "peer did not return a certificate")
    assert hall.accepted == []


@pytest.mark.parametrize(
    ("is_stranger", "is_expired", "reason"),
    [(True, False, "unable to get local issuer certificate"), (False, True, "certificate has expired")],
)
@on_both_loops
async def test_client_with_a_bad_certificate_is_refused(
    hall: Hall,
    is_stranger: bool,
    is_expired: bool,
    reason: str,
    authority: Authority,
    stranger: Authority,
    mutual: Certificates,
    tmp_path: Path,
) -> None:
    issuer = stranger if is_stranger else authority
    shown = issuer.issue(tmp_path, "mallory", is_expired=is_expired, common_name="alice")
    listener = await hall.listen(mutual)
    client = await hall.secure(listener, authority.client_context(shown))
    assert await is_closed(client)
    assert failed(await hall.line(), client, reason)
    assert hall.accepted == []


@on_both_loops
async def test_client_that_does_not_trust_us_is_one_line_in_the_log(
    hall: Hall, stranger: Authority, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates)
    with pytest.raises(ssl.SSLCertVerificationError):
        await hall.secure(listener, stranger.client_context())
    assert (await hall.line())["reason"] == "tlsv1 alert unknown ca"
    assert hall.accepted == []


@on_both_loops
async def test_client_of_an_old_version_is_one_line_in_the_log(
    hall: Hall, authority: Authority, server: Files
) -> None:
    listener = await hall.listen(
        Certificates(TlsSettings(certificate_file=server.both, minimum_version="1.3"))
    )
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await hall.secure(listener, context)
    assert (await hall.line())["reason"] == "unsupported protocol"


@pytest.mark.parametrize("part", ["half a hello", "a whole hello"])
@pytest.mark.parametrize("is_reset", [False, True])
@on_both_loops
async def test_client_that_goes_in_the_middle_of_the_handshake_is_one_line_in_the_log(
    hall: Hall, part: str, is_reset: bool, authority: Authority, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates)
    hello = hello_of(authority.client_context())
    client = hall.connect(listener, hello if part == "a whole hello" else hello[:100])
    await until(lambda: listener.waiting == 1, "there is not exactly one waiting connection")
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    line = await hall.line()
    assert (line["event"], line["reason"]) == ("tls handshake failed", "closed by the peer")
    await until(lambda: listener.waiting == 0, "a connection is still waiting")


@pytest.mark.parametrize("proxies", [(), OURSELVES])
@pytest.mark.parametrize("is_reset", [False, True])
@on_both_loops
async def test_who_comes_and_goes_without_a_word_is_no_line_in_the_log(
    hall: Hall, proxies: Any, is_reset: bool, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates, proxies=proxies)
    client = hall.connect(listener)
    await until(lambda: listener.waiting == 1, "there is not exactly one waiting connection")
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await until(lambda: listener.waiting == 0, "a connection is still waiting")
    assert hall.lines == []


@on_both_loops
async def test_who_stops_halfway_is_closed_and_the_log_stays_short(
    hall: Hall, authority: Authority, certificates: Certificates, scale: int
) -> None:
    listener = await hall.listen(certificates, timeout_s=0.3, proxies=parse_networks([HOST], "proxies"))
    told, hello = proxied("192.0.2.7", 1), hello_of(authority.client_context())
    parts = (b"", told[:5], told[:-1], told, told + hello[:3], told + hello[:-1], told + hello)
    crowd = [hall.connect(listener, part) for part in parts * 20 * scale]
    assert await asyncio.to_thread(lambda: all(map(reads_the_end, crowd)))
    assert listener.waiting == 0
    assert {line["reason"] for line in hall.lines} == {"timeout"}
    assert {line["event"] for line in hall.lines} == {"tls handshake failed", "proxy header refused"}
    left_out = sum(line.get("left_out", 0) for line in hall.lines)
    assert len(hall.lines) + left_out <= len(crowd)
    assert hall.accepted == []


@on_both_loops
async def test_lines_about_failures_are_counted_and_few(hall: Hall, certificates: Certificates) -> None:
    listener = await hall.listen(certificates)
    crowd = [hall.connect(listener, MQTT_CONNECT) for _ in range(LINES_PER_SECOND * 8)]
    assert await asyncio.to_thread(lambda: all(map(reads_the_end, crowd)))
    assert LINES_PER_SECOND <= len(hall.lines) < len(crowd)


@on_both_loops
async def test_deadline_is_one_for_all_however_slowly_bytes_come(
    hall: Hall, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates, timeout_s=0.3, proxies=OURSELVES)
    client = hall.connect(listener)

    def drip() -> bool:
        try:
            for byte in proxied("192.0.2.7", 1, tlvs=bytes(4000)):
                client.sendall(bytes((byte,)))
                _pause(client)
        except OSError:
            return True
        return False

    assert await asyncio.to_thread(drip)
    assert (await hall.line())["reason"] == "timeout"


def _pause(client: socket.socket) -> None:
    """Wait a little, or until the other side has gone."""
    client.settimeout(0.01)
    try:
        if not client.recv(1):
            raise ConnectionResetError
    except TimeoutError:
        client.settimeout(PATIENCE_S)


# PROXY headers


@pytest.mark.parametrize(
    ("header", "host", "port"),
    [
        (proxied("192.0.2.7", 51234), "192.0.2.7", 51234),
        (proxied("2001:db8::7", 51234), "2001:db8::7", 51234),
        (proxied("192.0.2.7", 51234, tlvs=b"\x02\x00\x03abc" * 50), "192.0.2.7", 51234),
        (proxied("192.0.2.7", 51234, command=0x20), HOST, None),
        (SIGNATURE + b"\x21\x00\x00\x00", HOST, None),
    ],
)
@pytest.mark.parametrize("is_encrypted", [False, True])
@on_both_loops
async def test_door_is_told_who_is_behind_the_proxy(
    hall: Hall,
    header: bytes,
    host: str,
    port: int | None,
    is_encrypted: bool,
    authority: Authority,
    certificates: Certificates,
) -> None:
    listener = await hall.listen(certificates if is_encrypted else None, proxies=OURSELVES)
    if is_encrypted:
        client: socket.socket = await hall.secure(listener, authority.client_context(), header)
        assert await exchange(client, b"hello") == b"hello"
    else:
        client = hall.connect(listener, header + b"hello")
        assert await exchange(client, b"") == b""
        caller = await hall.caller()
        await until(lambda: caller.heard == b"hello", 'heard did not become b"hello"')
    own_port = client.getsockname()[1]
    assert (await hall.caller()).peer == Peer(host, own_port if port is None else port)


@on_both_loops
async def test_header_may_come_byte_by_byte_and_nothing_behind_it_is_lost(
    hall: Hall, authority: Authority, certificates: Certificates
) -> None:
    listener = await hall.listen(certificates, proxies=OURSELVES)
    context = authority.client_context()
    client = hall.connect(listener)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in proxied("192.0.2.7", 51234, tlvs=b"\xe0\x00\x02hi"):
        client.sendall(bytes((byte,)))
        await asyncio.sleep(0.001)
    secured = await asyncio.to_thread(context.wrap_socket, client, server_hostname=HOST)
    hall.sockets.append(secured)
    assert await exchange(secured, b"hello") == b"hello"
    assert (await hall.caller()).peer == Peer("192.0.2.7", 51234)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 8883\r\n", "PROXY header of version 1"),
        (MQTT_CONNECT, "no PROXY header"),
        (b"?", "no PROXY header"),
        (SIGNATURE + b"\x21\x11\xff\xff", "PROXY header of 65551 bytes, 4096 are allowed"),
        (SIGNATURE + b"\x21\x11\x00\x01\x00", "PROXY header without its addresses"),
    ],
)
@on_both_loops
async def test_proxy_without_a_good_header_is_refused_at_once(hall: Hall, data: bytes, reason: str) -> None:
    listener = await hall.listen(proxies=OURSELVES)
    client = hall.connect(listener, data)
    assert await is_closed(client)
    line = await hall.line()
    assert (line["event"], line["log_level"], line["reason"]) == ("proxy header refused", "info", reason)
    assert hall.accepted == []


@on_both_loops
async def test_proxy_that_goes_in_the_middle_of_its_header_is_one_line_in_the_log(hall: Hall) -> None:
    listener = await hall.listen(proxies=OURSELVES)
    hall.connect(listener, SIGNATURE).close()
    line = await hall.line()
    assert (line["event"], line["reason"]) == ("proxy header refused", "closed by the peer")


@on_both_loops
async def test_header_from_elsewhere_is_not_taken(hall: Hall, certificates: Certificates) -> None:
    elsewhere = parse_networks(["10.0.0.0/8"], "proxies")
    header = proxied("192.0.2.7", 51234)
    plain = await hall.listen(proxies=elsewhere)
    client = hall.connect(plain)
    assert await exchange(client, header) == header  # the door hears it, and will find that it is no MQTT
    assert (await hall.caller()).peer == Peer(HOST, client.getsockname()[1])
    encrypted = await hall.listen(certificates, proxies=elsewhere)
    client = hall.connect(encrypted, header)
    assert await is_closed(client)
    assert failed(await hall.line(), client, "wrong version number")


# Who is admitted


@pytest.mark.parametrize("has_layers", [False, True])
@on_both_loops
async def test_who_is_not_admitted_is_closed_before_anything_is_done(
    hall: Hall, has_layers: bool, certificates: Certificates
) -> None:
    asked: list[str] = []

    def admit(host: str) -> bool:
        asked.append(host)
        return False

    listener = await hall.listen(certificates if has_layers else None, admit=admit)
    assert await is_closed(hall.connect(listener))
    assert asked == [HOST]
    assert hall.accepted == []
    assert hall.lines == []


@on_both_loops
async def test_who_is_admitted_without_other_layers_reaches_the_door(hall: Hall) -> None:
    listener = await hall.listen(admit=lambda host: host == HOST)
    client = hall.connect(listener)
    assert await exchange(client, b"hello") == b"hello"
    assert (await hall.caller()).peer == Peer(HOST, client.getsockname()[1])


@on_both_loops
async def test_behind_a_proxy_the_client_is_admitted_and_not_the_proxy(hall: Hall) -> None:
    asked: list[str] = []

    def admit(host: str) -> bool:
        asked.append(host)
        return host == "192.0.2.7"

    listener = await hall.listen(proxies=OURSELVES, admit=admit)
    refused = hall.connect(listener, proxied("192.0.2.8", 1))
    assert await is_closed(refused)
    client = hall.connect(listener, proxied("192.0.2.7", 1))
    assert await exchange(client, b"hello") == b"hello"
    assert asked == ["192.0.2.8", "192.0.2.7"]
    assert hall.lines == []


@pytest.mark.parametrize("proxies", [(), OURSELVES])
@on_both_loops
async def test_who_is_asked_about_is_not_among_those_who_wait(
    hall: Hall, proxies: Any, certificates: Certificates
) -> None:
    counts: list[int] = []

    def admit(host: str) -> bool:
        counts.append(listener.waiting)
        return True

    listener = await hall.listen(certificates, proxies=proxies, admit=admit)
    for number in range(3):
        hall.connect(listener, proxied("192.0.2.7", 1) if proxies else b"")

        def is_reported(wanted: int = number + 1) -> bool:
            return len(counts) == wanted

        await until(is_reported, "the number of reports is wrong")
        assert listener.waiting == number + 1
    assert counts == [0, 1, 2]
