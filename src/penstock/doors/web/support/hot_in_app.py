"""Adapter of hot routes for the ASGI application, so that it is complete wherever it runs.

The listener serves them itself; the application has them for OpenAPI, and for hosts other than the
listener. Both call the same handler.
"""

from asyncio import Future, get_running_loop
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from fastapi import Request, Response
from msgspec import Struct

from penstock.net.door import Peer
from penstock.net.http.errors import JSON
from penstock.net.http.request import Request as HotRequest
from penstock.net.http.routes import Handler

if TYPE_CHECKING:
    from penstock.net.http.connection import HttpConnection


class NoConnection(Struct):
    """Stands where a request of the listener has its connection."""

    peer: Peer


class AppRequest(HotRequest):
    """A request of the application, as handlers of the listener know requests."""

    __slots__ = ("answer",)

    def __init__(self, request: Request) -> None:
        nowhere = cast("HttpConnection", NoConnection(request.state.peer))
        scope = request.scope
        super().__init__(nowhere, request.method, scope["path"], b"", scope["query_string"])
        self.headers = list(scope["headers"])
        self.identity = request.state.identity
        self.answer: Future[Response] = get_running_loop().create_future()

    def respond(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Respond, once."""
        if not self.answer.done():
            self.answer.set_result(Response(body, status, dict(headers), content_type))


async def respond_by(handler: Handler, request: Request) -> Response:
    """Return the response of a hot handler to a request of the application."""
    hot = AppRequest(request)
    hot.body = await request.body()
    handler(hot)
    try:
        return await hot.answer
    finally:
        hot.is_disconnected = True
