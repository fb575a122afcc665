"""One listening port, and what lies between its socket and a door's protocol: PROXY header and TLS.

A port that needs neither is the loop's own affair and costs nothing here. Otherwise whoever is accepted is a
guest at first: an own socket, a task and one deadline for everything, until its protocol takes over. Guests
are cheap to turn away, and a failed one is a line in the log at most, for anyone on the network can fail.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, cast

import structlog

from penstock.doors.base import Peer, address
from penstock.doors.notes import Notes
from penstock.doors.tls import Certificates, common_name, words_of
from penstock.errors import InvalidConfig, WireError
from penstock.wire import proxy

log = structlog.get_logger("penstock.listener")

ACCEPTED_AT_ONCE = 64
"""Connections taken in one turn of the loop, so that a crowd does not keep everyone else waiting."""
RETRY_S = 1.0
"""How long nobody is accepted after the system had no file or memory left for it."""
SHUTDOWN_TIMEOUT_S = 5.0
"""How long a peer may take to answer the end of TLS."""

Network = IPv4Network | IPv6Network
Factory = Callable[[Peer | None], asyncio.BaseProtocol]


def parse_networks(texts: Iterable[str], setting: str) -> tuple[Network, ...]:
    """Networks from their usual notation, `10.0.0.0/8` or a single address.

    Raises:
        InvalidConfig: one of them is something else; the text names the setting.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise InvalidConfig(f"{setting}: {error}") from None
    return tuple(networks)


class Listener:
    """Accepts connections on one port and brings them to a door's protocol.

    Args:
        factory: makes the door's protocol; it is told who is there, or None where that is whoever the
            transport says. The protocol's `connection_made` is called at once afterwards.
        setting: the key of the port, for complaints.
        timeout_s: longest time from accept to the door, all layers together.
        certificates: whose context at that moment a connection gets; None speaks no TLS.
        is_http2: the protocol is HTTP/2, which TLS tells the client.
        proxies: who has to begin with a PROXY header, and is the only one who may.
        admit: asked with the address of each connection before anything is done for it; with the one the
            header tells, if there is one. False closes it. `waiting` does not count who is asked about.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Factory,
        *,
        host: str,
        port: int,
        setting: str,
        backlog: int = 1_024,
        timeout_s: float = 10.0,
        certificates: Certificates | None = None,
        is_http2: bool = False,
        proxies: Sequence[Network] = (),
        admit: Callable[[str], bool] | None = None,
    ) -> None:
        self.loop = loop
        self.factory = factory
        self.timeout_s = timeout_s
        self.certificates = certificates
        self.admit = admit
        self._is_http2 = is_http2
        self._host = host
        self._port = port
        self._setting = setting
        self._backlog = backlog
        self._proxies = tuple(proxies)
        self._server: asyncio.Server | None = None
        self._sockets: list[socket.socket] = []
        self._guests: set[Guest] = set()
        self._retry: asyncio.TimerHandle | None = None
        self.notes = Notes(log, loop.time)

    # Opening and closing

    async def open(self) -> None:
        """Listen.

        Raises:
            InvalidConfig: the address is in use, or not ours.
        """
        try:
            if self.certificates is None and not self._proxies and self.admit is None:
                self._server = await self.loop.create_server(
                    lambda: self.factory(None), self._host, self._port, backlog=self._backlog
                )
            else:
                await self._listen()
        except OSError as error:
            self.close()
            # What a name server says has numbers of its own, below zero.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            where = address(self._host, self._port)
            raise InvalidConfig(f"{self._setting}: cannot listen on {where}: {reason}") from None

    async def _listen(self) -> None:
        found = await self.loop.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, where in dict.fromkeys((family, where) for family, _, _, _, where in found):
            listening = socket.create_server(cast("Any", where), family=family, backlog=self._backlog)
            listening.setblocking(False)
            self._sockets.append(listening)
        self._watch()

    def close(self) -> None:
        """Accept nobody any more, and send away who has not reached the door."""
        if self._server is not None:
            self._server.close()
        if self._retry is not None:
            self._retry.cancel()
        for listening in self._sockets:
            self.loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for guest in list(self._guests):
            guest.send_away()

    @property
    def sockets(self) -> list[socket.socket]:
        """What it listens on."""
        return list(cast("Any", self._server.sockets)) if self._server is not None else list(self._sockets)

    @property
    def port(self) -> int:
        """The port it listens on, of the first address if there are several."""
        return int(self.sockets[0].getsockname()[1])

    def addresses(self, scheme: str) -> list[str]:
        """Where clients find it."""
        return [f"{scheme}://{address(*listening.getsockname()[:2])}" for listening in self.sockets]

    # Guests

    @property
    def context(self) -> ssl.SSLContext | None:
        """What TLS is spoken with from now on; None if it is not."""
        if self.certificates is None:
            return None
        return self.certificates.h2_context if self._is_http2 else self.certificates.context

    @property
    def waiting(self) -> int:
        """How many were accepted and have not reached the door."""
        return len(self._guests)

    def _watch(self) -> None:
        self._retry = None
        for listening in self._sockets:
            self.loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, where = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file or no memory is left
                self._rest(error)
                return
            self._receive(accepted, Peer(*where[:2]))

    def _rest(self, error: OSError) -> None:
        """Leave connections where they are for a moment; being asked again at once would not help."""
        log.warning("cannot accept", setting=self._setting, reason=error.strerror)
        for listening in self._sockets:
            self.loop.remove_reader(listening)
        self._retry = self.loop.call_later(RETRY_S, self._watch)

    def _receive(self, accepted: socket.socket, peer: Peer) -> None:
        accepted.setblocking(False)
        is_proxy = bool(self._proxies) and self._is_proxy(peer.host)
        if is_proxy or self.admits(peer):
            self._guests.add(Guest(self, accepted, peer, is_proxy=is_proxy))
        else:
            accepted.close()

    def admits(self, peer: Peer, guest: "Guest | None" = None) -> bool:
        """Whether somebody from there may come in; a guest is not counted while we ask about it."""
        if self.admit is None:
            return True
        counted = self._guests & {guest}
        self._guests -= counted
        is_admitted = self.admit(peer.host)
        self._guests |= counted
        return is_admitted

    def _is_proxy(self, host: str) -> bool:
        found = ip_address(host)
        return any(found in network for network in self._proxies)

    def is_waiting(self, guest: "Guest") -> bool:
        """Whether a guest was neither let in nor sent away."""
        return guest in self._guests

    def forget(self, guest: "Guest") -> None:
        """A guest is one no more."""
        self._guests.discard(guest)


class Guest(asyncio.Protocol):
    """One connection from accept to the door, and its protocol as long as the door has given it none."""

    def __init__(self, listener: Listener, accepted: socket.socket, peer: Peer, *, is_proxy: bool) -> None:
        self._listener = listener
        self._loop = listener.loop
        self._socket = accepted
        self._peer = peer
        self._is_proxy = is_proxy
        self._is_with_loop = False  # the loop has the socket and closes it
        self._failure = "connection lost"
        self._deadline = self._loop.call_later(listener.timeout_s, self._on_deadline)
        self._task = self._loop.create_task(self._come_in())
        self._task.add_done_callback(self._on_done)

    # Layer by layer

    async def _come_in(self) -> None:
        if self._is_proxy:
            self._failure = "proxy header refused"
            if not await self._hear():
                return
            told = proxy.parse(await self._read_header())
            self._peer = self._peer if told is None else Peer(*told)
            if not self._listener.admits(self._peer, self):
                return
        context = self._listener.context
        if context is None:
            self._is_with_loop = True
            await self._loop.connect_accepted_socket(lambda: self, self._socket)
        else:
            self._failure = "tls handshake failed"
            if not await self._hear():
                return
            self._is_with_loop = True
            await self._loop.connect_accepted_socket(
                lambda: self,
                self._socket,
                ssl=context,
                ssl_handshake_timeout=self._listener.timeout_s,  # the deadline comes before it
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )

    async def _hear(self) -> bool:
        """Wait for the first byte and leave it there; False if there is none, as with health checks."""
        readable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._socket, _wake, readable)
        try:
            await readable
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except ConnectionError:
            return False
        finally:
            self._loop.remove_reader(self._socket)

    async def _read_header(self) -> bytes:
        header = b""
        wanted = proxy.HEADER_BYTES
        while len(header) < wanted:
            # Not a byte more than wanted: what follows is for the next layer to read.
            chunk = await self._loop.sock_recv(self._socket, wanted - len(header))
            if not chunk:
                raise ConnectionResetError
            header += chunk
            proxy.check_start(header)
            if len(header) == proxy.HEADER_BYTES:
                wanted += proxy.announced(header)
        return header

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """All layers are done: the door's protocol takes over, before the first byte is read."""
        transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        if not self._listener.is_waiting(self):  # sent away in this very turn
            transport.abort()
            return
        self._leave()
        name = common_name(transport.get_extra_info("peercert"))
        try:
            protocol = self._listener.factory(Peer(self._peer.host, self._peer.port, name))
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
        except Exception:  # a mistake of ours; the loop would leave the connection open
            log.exception("connection not taken over", peer=str(self._peer))
            transport.abort()

    # The end, one way or another

    def send_away(self) -> None:
        """Close the connection, wherever it is on its way."""
        self._leave()
        self._task.cancel()

    def _on_deadline(self) -> None:
        self._listener.notes.write(self._failure, peer=str(self._peer), reason="timeout")
        self.send_away()

    def _leave(self) -> None:
        self._deadline.cancel()
        self._listener.forget(self)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        """Close what did not reach the door, and say why unless that was our own wish."""
        error = None if task.cancelled() else task.exception()
        if not self._is_with_loop:
            self._socket.close()
        if not self._listener.is_waiting(self):  # with the door by now, or sent away
            return
        self._leave()
        if isinstance(error, (OSError, WireError)):
            self._listener.notes.write(self._failure, peer=str(self._peer), reason=_reason_of(error))
        elif error is not None:
            log.error("connection not let in", peer=str(self._peer), exc_info=error)


def _reason_of(error: OSError | WireError) -> str:
    if isinstance(error, ssl.SSLError):
        return words_of(error)
    return "closed by the peer" if isinstance(error, ConnectionError) else str(error)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
