"""Listener: one port, and the layers between its socket and a door's protocol: PROXY header and TLS.

A port that needs neither is left to the event loop. Otherwise an accepted connection is pending first: a
socket, a task and one deadline for all layers, until its protocol takes over. Pending connections are
cheap to refuse, and a failed one costs at most a log line.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, cast

import structlog

from penstock.errors import InvalidConfig, WireError
from penstock.net.door import Peer, address
from penstock.net.log_throttle import ThrottledLog
from penstock.net.tls import Certificates, common_name, words_of
from penstock.net.transport import SocketProtocol
from penstock.wire import proxy_protocol

log = structlog.get_logger("penstock.listener")

ACCEPTED_AT_ONCE = 64
"""Connections accepted in one turn of the loop, so that a rush does not delay all others."""
RETRY_S = 1.0
"""Pause in accepting after the system had no file or memory left."""
TCP_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Options of TCP keep alive: a peer that is gone is noticed two minutes after its last byte."""
SHUTDOWN_TIMEOUT_S = 5.0
"""Time that a peer may take to respond to the end of TLS."""

Network = IPv4Network | IPv6Network
Factory = Callable[[Peer | None], SocketProtocol]


def parse_networks(texts: Iterable[str], setting: str) -> tuple[Network, ...]:
    """Parse networks, `10.0.0.0/8` or a single address.

    Raises:
        InvalidConfig: one of them is not a network; the text names the setting.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise InvalidConfig(f"{setting}: {error}") from None
    return tuple(networks)


class Listener:
    """Accepts connections on one port and hands them to a door's protocol.

    Args:
        factory: makes the door's protocol for a peer; None means that the transport has the peer's address.
            The protocol's `connection_made` is called right afterwards.
        setting: the key of the port, for error texts.
        timeout_s: longest time from accept to the door, all layers together.
        certificates: provides the current TLS context; None means no TLS.
        is_http2: the protocol is HTTP/2, which TLS announces by ALPN.
        proxies: networks that must, and alone may, begin with a PROXY header.
        admit: called with the address of each connection before anything is done for it, with that of the
            PROXY header if there is one. False closes it. `waiting` does not count that connection.
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
        self._pending: set[PendingConnection] = set()
        self._retry: asyncio.TimerHandle | None = None
        self.throttled_log = ThrottledLog(log, loop.time)

    # Opening and closing

    async def open(self) -> None:
        """Listen.

        Raises:
            InvalidConfig: the address is in use, or not ours.
        """
        try:
            if self.certificates is None and not self._proxies and self.admit is None:
                self._server = await self.loop.create_server(
                    lambda: cast("asyncio.BaseProtocol", self.factory(None)),
                    self._host,
                    self._port,
                    backlog=self._backlog,
                )
            else:
                await self._listen()
            for listening in self.sockets:
                _probe_idle_peers(listening.fileno())
        except OSError as error:
            self.close()
            # Errors of name resolution have numbers below zero.
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
        """Stop accepting, and close all pending connections."""
        if self._server is not None:
            self._server.close()
        if self._retry is not None:
            self._retry.cancel()
        for listening in self._sockets:
            self.loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for pending in list(self._pending):
            pending.abort()

    @property
    def sockets(self) -> list[socket.socket]:
        """The listening sockets."""
        return list(cast("Any", self._server.sockets)) if self._server is not None else list(self._sockets)

    @property
    def port(self) -> int:
        """The port it listens on, of the first address if there are several."""
        return int(self.sockets[0].getsockname()[1])

    def addresses(self, scheme: str) -> list[str]:
        """URLs that clients connect to."""
        return [f"{scheme}://{address(*listening.getsockname()[:2])}" for listening in self.sockets]

    # Pending connections

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS context for new connections; None without TLS."""
        if self.certificates is None:
            return None
        return self.certificates.h2_context if self._is_http2 else self.certificates.context

    @property
    def waiting(self) -> int:
        """Number of accepted connections that have not reached the door."""
        return len(self._pending)

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
                self._back_off(error)
                return
            self._on_accepted(accepted, Peer(*where[:2]))

    def _back_off(self, error: OSError) -> None:
        """Stop accepting for a moment: the loop would call again at once, in vain."""
        log.warning("cannot accept", setting=self._setting, reason=error.strerror)
        for listening in self._sockets:
            self.loop.remove_reader(listening)
        self._retry = self.loop.call_later(RETRY_S, self._watch)

    def _on_accepted(self, accepted: socket.socket, peer: Peer) -> None:
        accepted.setblocking(False)
        is_proxy = bool(self._proxies) and self._is_proxy(peer.host)
        if is_proxy or self.admits(peer):
            self._pending.add(PendingConnection(self, accepted, peer, is_proxy=is_proxy))
        else:
            accepted.close()

    def admits(self, peer: Peer, pending: "PendingConnection | None" = None) -> bool:
        """True if a peer is admitted; its own pending connection is not counted."""
        if self.admit is None:
            return True
        counted = self._pending & {pending}
        self._pending -= counted
        is_admitted = self.admit(peer.host)
        self._pending |= counted
        return is_admitted

    def _is_proxy(self, host: str) -> bool:
        found = ip_address(host)
        return any(found in network for network in self._proxies)

    def is_waiting(self, pending: "PendingConnection") -> bool:
        """True if a pending connection has neither reached the door nor been closed."""
        return pending in self._pending

    def forget(self, pending: "PendingConnection") -> None:
        """Remove a pending connection. Idempotent."""
        self._pending.discard(pending)


class PendingConnection(asyncio.Protocol):
    """One connection from accept to the door; its own protocol until the door's takes over."""

    def __init__(self, listener: Listener, accepted: socket.socket, peer: Peer, *, is_proxy: bool) -> None:
        self._listener = listener
        self._loop = listener.loop
        self._socket = accepted
        self._peer = peer
        self._is_proxy = is_proxy
        self._is_with_loop = False  # the loop owns the socket and closes it
        self._failure = "connection lost"
        self._deadline = self._loop.call_later(listener.timeout_s, self._on_deadline)
        self._task = self._loop.create_task(self._handshake())
        self._task.add_done_callback(self._on_done)

    # Layer by layer

    async def _handshake(self) -> None:
        if self._is_proxy:
            self._failure = "proxy header refused"
            if not await self._wait_for_data():
                return
            source = proxy_protocol.parse(await self._read_header())
            self._peer = self._peer if source is None else Peer(*source)
            if not self._listener.admits(self._peer, self):
                return
        context = self._listener.context
        if context is None:
            self._is_with_loop = True
            await self._loop.connect_accepted_socket(lambda: self, self._socket)
        else:
            self._failure = "tls handshake failed"
            if not await self._wait_for_data():
                return
            self._is_with_loop = True
            await self._loop.connect_accepted_socket(
                lambda: self,
                self._socket,
                ssl=context,
                ssl_handshake_timeout=self._listener.timeout_s,  # the deadline comes before it
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )

    async def _wait_for_data(self) -> bool:
        """Wait for the first byte without consuming it; False at end of input, as with health checks."""
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
        wanted = proxy_protocol.HEADER_BYTES
        while len(header) < wanted:
            # Not a byte more than needed: the rest belongs to the next layer.
            chunk = await self._loop.sock_recv(self._socket, wanted - len(header))
            if not chunk:
                raise ConnectionResetError
            header += chunk
            proxy_protocol.check_start(header)
            if len(header) == proxy_protocol.HEADER_BYTES:
                wanted += proxy_protocol.announced(header)
        return header

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand over to the door's protocol, before the first byte is read."""
        transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        if not self._listener.is_waiting(self):  # aborted in this very turn
            transport.abort()
            return
        self._remove()
        name = common_name(transport.get_extra_info("peercert"))
        try:
            protocol = self._listener.factory(Peer(self._peer.host, self._peer.port, name))
            transport.set_protocol(cast("asyncio.BaseProtocol", protocol))
            protocol.connection_made(transport)
        except Exception:  # an error of the server; the loop would leave the connection open
            log.exception("connection not handed over", peer=str(self._peer))
            transport.abort()

    # Closing

    def abort(self) -> None:
        """Close the connection, in whatever layer it is."""
        self._remove()
        self._task.cancel()

    def _on_deadline(self) -> None:
        self._listener.throttled_log.write(self._failure, peer=str(self._peer), reason="timeout")
        self.abort()

    def _remove(self) -> None:
        self._deadline.cancel()
        self._listener.forget(self)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        """Close a connection that did not reach the door, and log why unless the server closed it."""
        error = None if task.cancelled() else task.exception()
        if not self._is_with_loop:
            self._socket.close()
        if not self._listener.is_waiting(self):  # handed over, or aborted
            return
        self._remove()
        if isinstance(error, (OSError, WireError)):
            self._listener.throttled_log.write(self._failure, peer=str(self._peer), reason=_reason_of(error))
        elif error is not None:
            log.error("connection not let in", peer=str(self._peer), exc_info=error)


def _probe_idle_peers(listening: int) -> None:
    """TCP keep alive for all connections of a port, so that dead peers of idle ones are noticed.

    Accepted sockets inherit it. Not every system has all of the options.
    """
    with socket.socket(fileno=os.dup(listening)) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in TCP_KEEP_ALIVE.items():
            if hasattr(socket, option):
                same.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _reason_of(error: OSError | WireError) -> str:
    if isinstance(error, ssl.SSLError):
        return words_of(error)
    return "closed by the peer" if isinstance(error, ConnectionError) else str(error)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
