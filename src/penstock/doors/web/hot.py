"""Hot routes inside the application, so that it is complete wherever it runs.

The listener answers them itself; the application has them for its description, and for whoever hosts it
alone. Both are answered by the same handler.
"""

from asyncio import Future, get_running_loop
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from fastapi import Request, Response
from msgspec import Struct

from penstock.doors.base import Peer
from penstock.doors.http.problems import JSON
from penstock.doors.http.requests import Request as HotRequest
from penstock.doors.http.routes import Handler

if TYPE_CHECKING:
    from penstock.doors.http.protocol import HttpConnection


class Nowhere(Struct):
    """Stands where a request of the listener has its connection."""

    peer: Peer


class AppRequest(HotRequest):
    """A request of the application, as handlers of the listener know requests."""

    __slots__ = ("answer",)

    def __init__(self, request: Request) -> None:
        nowhere = cast("HttpConnection", Nowhere(request.state.peer))
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
        """Answer, once."""
        if not self.answer.done():
            self.answer.set_result(Response(body, status, dict(headers), content_type))


async def answer_by(handler: Handler, request: Request) -> Response:
    """What a handler of the listener says to a request of the application."""
    hot = AppRequest(request)
    hot.body = await request.body()
    handler(hot)
    try:
        return await hot.answer
    finally:
        hot.is_gone = True
