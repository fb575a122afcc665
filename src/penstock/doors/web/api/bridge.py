"""POST /publish: the HTTP bridge of an MQTT broker that others know, for its callers.

The payload is base64, errors are plain text, and the response to a message that was taken is
`{"status":"ok"}`.
"""

from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, Struct, json

from penstock.core.broker import Broker
from penstock.doors.web.context import Web
from penstock.doors.web.publishing import send
from penstock.errors import InvalidTopic, PenstockError, QuotaExceeded, StorageUnavailable, TooLarge
from penstock.model import Door
from penstock.net.http.errors import headers_of, status_of
from penstock.net.http.request import Request
from penstock.net.http.routes import Routes
from penstock.runs import Run, bare_shape

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = "/publish"
TEXT = "text/plain; charset=utf-8"


class BridgeMessage(Struct):
    """A message in the form of the bridge. Unknown fields are ignored."""

    topic: str = ""
    payload: bytes | None = None
    """As base64."""
    qos: int = 0
    retain: bool = False


class BridgeAnswer(Struct):
    """The message was accepted."""

    status: str = "ok"


_decoder = json.Decoder(BridgeMessage)
TAKEN = json.encode(BridgeAnswer())


class Bridge:
    """Publishes what callers of the bridge send."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def take(self, request: Request) -> None:
        """Publish the message of a request; the response comes now or later."""
        try:
            message = _decoder.decode(request.body)
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            _complain(request, f"invalid JSON: {error}")
            return
        if not message.topic:
            _complain(request, "topic is required")
        elif message.qos not in (0, 1, 2):
            _complain(request, "qos is 0, 1 or 2")
        else:
            payload = message.payload or b""
            shape = bare_shape(Door.WEB, message.qos, message.retain)
            run = Run(message.topic, payload, 0, len(payload), 1, shape)
            send(self._broker, request, run, _respond, _refuse)


def _respond(request: Request, _: object) -> None:
    request.respond(200, TAKEN)


def _complain(request: Request, text: str) -> None:
    request.respond(400, text.encode(), content_type=TEXT)


def _refuse(request: Request, error: PenstockError) -> None:
    text = f"publish failed: {error}"
    request.respond(status_of(error), text.encode(), content_type=TEXT, headers=headers_of(error))


def add_hot_routes(table: Routes, web: Web) -> None:
    """Let the listener publish by itself."""
    table.add("POST", PATH, Bridge(web.broker).take)


def routes(web: Web) -> "APIRouter":
    """The same for the application, which describes it."""
    from fastapi import APIRouter, Response  # noqa: PLC0415 - slow to load, and not needed by the rest
    from fastapi import Request as AppRequest  # noqa: PLC0415

    from penstock.doors.web.support.requests import respond_by  # noqa: PLC0415
    from penstock.doors.web.support.responses import describe, reference_to  # noqa: PLC0415

    router, take = APIRouter(tags=["publish"]), Bridge(web.broker).take
    refusals = (InvalidTopic, TooLarge, QuotaExceeded, StorageUnavailable)
    responses = describe(BridgeAnswer, *refusals, text="The message was accepted.")
    for status in [status for status in responses if status != 200]:
        responses[status]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    content: dict[str, Any] = {"application/json": {"schema": reference_to(BridgeMessage)}}

    @router.post(
        PATH,
        summary="Publish one message, as callers of an MQTT broker's HTTP bridge do",
        responses=responses,
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def publish(request: AppRequest) -> Response:
        return await respond_by(take, request)

    return router
