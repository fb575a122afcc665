"""The opening handshake: what a request must bring, and the answer to it.

There is no socket here: an HTTP server that has read a request itself can ask for the answer. Which names are
ours and which pages are welcome is in `doors/origins.py`.
"""

from collections.abc import Sequence
from http import HTTPStatus

from msgspec import Struct
from websockets.datastructures import MultipleValuesError
from websockets.exceptions import NegotiationError
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from penstock.doors.origins import Origins


class Terms(Struct, frozen=True, kw_only=True):
    """What one listener asks of those who come."""

    path: str
    subprotocols: tuple[str, ...]
    """One of them must be offered; the first of ours that is offered is spoken."""
    origins: Origins
    """Our names, and the pages that are welcome."""
    limit_bytes: int
    """Largest frame, until the inner protocol sets another."""
    timeout_s: float
    """Longest a handshake may take."""


class _Refusal(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def read_request(head: bytes) -> Request | None:
    """The request that a head holds, up to its empty line; None if it is not valid."""
    engine = ServerProtocol()
    engine.receive_data(head)
    engine.parser.close()  # it refers to the engine, and the engine to it
    return next((event for event in engine.events_received() if isinstance(event, Request)), None)


def answer(request: Request, terms: Terms) -> Response:
    """101 if the request is one to accept, otherwise a status and a text that say why not."""

    def select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol:
        for subprotocol in terms.subprotocols:
            if subprotocol in offered:
                return Subprotocol(subprotocol)
        raise NegotiationError(f"the sub-protocol {' or '.join(terms.subprotocols)} must be offered")

    engine = ServerProtocol(select_subprotocol=select)
    engine.parser.close()
    try:
        _check(request, terms)
    except _Refusal as refusal:
        return engine.reject(refusal.status, f"{refusal}\n")
    response = engine.accept(request)
    del engine.select_subprotocol
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        response.headers["Sec-WebSocket-Version"] = "13"  # RFC 6455, 4.4
    return response


def refusal(status: HTTPStatus, text: str) -> Response:
    """The answer to what could not even be read."""
    engine = ServerProtocol()
    engine.parser.close()
    return engine.reject(status, f"{text}\n")


def _check(request: Request, terms: Terms) -> None:
    origins = terms.origins
    host = _only(request, "Host")
    if host is None:
        raise _Refusal(HTTPStatus.BAD_REQUEST, "Host is missing")
    if not origins.is_ours(host):
        raise _Refusal(
            HTTPStatus.MISDIRECTED_REQUEST, f"Host {host!r} is no name of this server: see websocket.hosts"
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
