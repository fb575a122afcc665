"""Opening handshake of a WebSocket: checks of the request, and the response.

There is no socket here: the HTTP listener hands over requests that it has read itself.
"""

import logging
from collections.abc import Sequence
from http import HTTPStatus

from msgspec import Struct
from websockets.datastructures import MultipleValuesError
from websockets.exceptions import InvalidHeader, NegotiationError
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from penstock.net.origins import Origins
from penstock.wire.websocket.deflate import WINDOW_BITS, Deflate

VERSION = "13"

engine_log = logging.getLogger("penstock.websocket.engine")
engine_log.setLevel(logging.WARNING)  # below that it logs whole heads, credentials included


class Terms(Struct, frozen=True, kw_only=True):
    """Requirements of one listener for a handshake."""

    path: str
    subprotocols: tuple[str, ...] = ()
    """One of them must be offered; the first match is used. Empty for none."""
    origins: Origins
    """Names of this server, and origins that may connect."""
    limit_bytes: int
    """Largest frame of a stream of bytes, or largest message."""
    timeout_s: float = 9.5
    """Longest handshake; a silent client is closed within ten seconds."""
    deflates: bool = False
    """Messages are compressed if a client asks for it."""


class HandshakeResult(Struct, frozen=True):
    """Response to a handshake, and the compression agreed on."""

    response: Response
    deflate: Deflate | None = None

    @property
    def is_acceptance(self) -> bool:
        """The connection becomes a WebSocket."""
        return self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS


class _Refusal(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def read_request(head: bytes) -> Request | None:
    """Parse the head of a request; None if it is not valid."""
    engine = ServerProtocol(logger=engine_log)
    engine.receive_data(head)
    engine.parser.close()  # it refers to the engine, and the engine to it
    return next((event for event in engine.events_received() if isinstance(event, Request)), None)


def respond_to(request: Request, terms: Terms) -> HandshakeResult:
    """Return 101 if the request is accepted, otherwise a status and the reason."""

    def select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        for subprotocol in terms.subprotocols:
            if subprotocol in offered:
                return Subprotocol(subprotocol)
        if not terms.subprotocols:
            return None
        raise NegotiationError(f"the sub-protocol {' or '.join(terms.subprotocols)} must be offered")

    extensions = _EXTENSIONS if terms.deflates else None
    engine = ServerProtocol(select_subprotocol=select, extensions=extensions, logger=engine_log)
    engine.parser.close()
    try:
        _check(request, terms)
    except _Refusal as refusal:
        return HandshakeResult(engine.reject(refusal.status, f"{refusal}\n"))
    response = engine.accept(request)
    del engine.select_subprotocol
    if _is_of_another_version(engine.handshake_exc):
        response = engine.reject(HTTPStatus.UPGRADE_REQUIRED, f"version {VERSION} of WebSocket is required\n")
        response.headers["Upgrade"] = "websocket"
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        response.headers["Sec-WebSocket-Version"] = VERSION  # RFC 6455, 4.4
        return HandshakeResult(response)
    return HandshakeResult(response, _agreed(engine))


_EXTENSIONS = [
    ServerPerMessageDeflateFactory(
        server_no_context_takeover=True,
        client_no_context_takeover=True,
        server_max_window_bits=WINDOW_BITS,
        client_max_window_bits=WINDOW_BITS,
    )
]
"""RFC 7692: no context takeover on either side, and the same window for clients that accept one."""


def _is_of_another_version(error: Exception | None) -> bool:
    return isinstance(error, InvalidHeader) and error.name == "Sec-WebSocket-Version"


def _agreed(engine: ServerProtocol) -> Deflate | None:
    for extension in engine.extensions:
        if isinstance(extension, PerMessageDeflate):
            return Deflate(extension.remote_max_window_bits, extension.local_max_window_bits)
    return None


def refusal(status: HTTPStatus, text: str) -> Response:
    """Response to a request that could not be parsed."""
    engine = ServerProtocol(logger=engine_log)
    engine.parser.close()
    return engine.reject(status, f"{text}\n")


def _check(request: Request, terms: Terms) -> None:
    origins = terms.origins
    host = _only(request, "Host")
    if host is None:
        raise _Refusal(HTTPStatus.BAD_REQUEST, "Host is missing")
    if not origins.is_ours(host):
        raise _Refusal(
            HTTPStatus.MISDIRECTED_REQUEST, f"Host {host!r} is not a name of this server: see websocket.hosts"
        )
    if request.path.partition("?")[0] != terms.path:
        raise _Refusal(HTTPStatus.NOT_FOUND, f"nothing here: WebSocket clients connect to {terms.path}")
    origin = _only(request, "Origin")
    if origin is not None and not origins.is_welcome(origin, host):
        raise _Refusal(HTTPStatus.FORBIDDEN, f"Origin {origin!r} is not allowed: see websocket.origins")


def _only(request: Request, header: str) -> str | None:
    try:
        return request.headers.get(header)
    except MultipleValuesError:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"{header} is given twice") from None
