"""POST /api/v1/publish: one message or many; the response comes after the commit.

A hot route, for clients that publish one message at a time. Of a list nothing is published if one message is
refused. A publisher that is blocked under `block` waits for its response.
"""

from itertools import islice
from typing import TYPE_CHECKING

import structlog
from msgspec import Struct, json

from penstock.common.cursor import Cursor, Position
from penstock.core.broker import Broker, Receipt, Refused, Steps
from penstock.doors.web.context import Web
from penstock.doors.web.publishing import (
    FORM,
    JSON,
    MAX_MESSAGES,
    PARAMETERS,
    NewMessage,
    read_bytes,
    read_message,
    send,
    send_all,
    topic_of,
)
from penstock.errors import (
    InvalidPayload,
    InvalidTopic,
    PenstockError,
    QuotaExceeded,
    StorageUnavailable,
    TooLarge,
    UnsupportedMedia,
)
from penstock.net.http.errors import PROBLEM, headers_of, problem_of, status_of
from penstock.net.http.request import Request
from penstock.net.http.routes import Routes
from penstock.runs import Run

if TYPE_CHECKING:
    from fastapi import APIRouter

log = structlog.get_logger("penstock.web")

PATH = "/api/v1/publish"
ABOUT = """\
As JSON, a message has a topic and either `data` or `payload`; of a list of messages nothing is published if
one is refused. Any other body is the payload, with its topic in the query or in `Penstock-Topic`. The
response comes after the commit. A message with an id that the same user published to its topic recently is
not published again, and gets the first receipt."""
REFUSALS: tuple[type[PenstockError], ...] = (
    InvalidTopic,
    InvalidPayload,
    TooLarge,
    UnsupportedMedia,
    QuotaExceeded,
    StorageUnavailable,
)
MAX_ERRORS = 100
"""Refused messages that a response names at most."""
RECEIPTS_A_STEP = 200
"""Receipts of a list that are encoded in one step."""


class ReceiptShape(Struct, omit_defaults=True):
    """Outcome of a message."""

    topic: str
    sequence: int
    epoch: int
    cursor: str
    subscribers: int
    """Number of subscribers, offline ones included; a shared group counts once."""
    stored: bool
    """It outlives the server."""
    message_id: str | None = None
    duplicate: bool = False
    """It was published before; this is the receipt of that time."""


class ReceiptsShape(Struct):
    """Outcome of each message of a list, in order."""

    receipts: list[ReceiptShape]


_encoder = json.Encoder()


class Publisher:
    """Publishes messages for requests, and responds to them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def take(self, request: Request) -> None:
        """Publish the messages of a request; the response comes now or later."""
        try:
            run = self._read(request)
        except PenstockError as error:
            request.fail(error)
            return
        if run is not None:
            send(self._broker, request, run, self._respond, Request.fail)
        else:
            send_all(self._broker, request, self._respond_all, _refuse)

    def _read(self, request: Request) -> Run | None:
        """Decode the message of a request; None if it has a list of messages."""
        topic = topic_of(request)
        if topic is not None:
            return read_bytes(topic, request.headers, request.body, self._broker.settings.topic)
        media = request.header(b"content-type")
        if media is not None and media != JSON:
            _check_media(media)
        if request.body.lstrip()[:1] == b"[":
            return None
        return read_message(request.body, self._broker.settings.topic)

    def _respond(self, request: Request, receipt: Receipt) -> None:
        request.respond(200, _encoder.encode(self._shape(receipt)))

    def _respond_all(self, request: Request, receipts: list[Receipt]) -> None:
        """Respond to a list, whose receipts are encoded in steps."""

        def fail(error: Exception) -> None:
            log.error("receipts not encoded", exc_info=error)
            request.fail_internally()

        self._broker.run_steps(self._encode(receipts), lambda body: request.respond(200, body), fail)

    def _encode(self, receipts: list[Receipt]) -> Steps[bytes]:
        """Receipts as `ReceiptsShape`."""
        parts: list[bytes] = []
        for start in range(0, len(receipts), RECEIPTS_A_STEP):
            if start:
                yield
            shapes = [self._shape(receipt) for receipt in receipts[start : start + RECEIPTS_A_STEP]]
            parts.append(_encoder.encode(shapes)[1:-1])
        return b'{"receipts":[' + b",".join(parts) + b"]}"

    def _shape(self, receipt: Receipt) -> ReceiptShape:
        position = Position(self._broker.log.log_id, receipt.epoch, receipt.offset)
        return ReceiptShape(
            receipt.topic,
            receipt.sequence,
            receipt.epoch,
            Cursor((position,)).encode(),
            receipt.subscribers,
            receipt.is_stored,
            receipt.message_id,
            receipt.is_duplicate,
        )


def _refuse(request: Request, error: PenstockError | Refused) -> None:
    """Say why nothing was published; of a list the first of those that are wrong gives the status."""
    if isinstance(error, PenstockError):
        request.fail(error)
        return
    index, first = next(iter(error.errors.items()))
    details = [
        {"index": at, "code": each.code, "detail": str(each)}
        for at, each in islice(error.errors.items(), MAX_ERRORS)
    ]
    problem = problem_of(type(first)(f"nothing was published: message {index}: {first}"), errors=details)
    request.respond(status_of(first), json.encode(problem), content_type=PROBLEM, headers=headers_of(first))


def _check_media(content_type: str) -> None:
    media = content_type.partition(";")[0].strip().lower()
    if media not in (JSON, FORM):
        raise UnsupportedMedia(
            f"this is {media}: messages are {JSON}, or bytes with their topic in the query"
        )


def add_hot_routes(table: Routes, web: Web) -> None:
    """Let the listener publish by itself."""
    table.add("POST", PATH, Publisher(web.broker).take)


def routes(web: Web) -> "APIRouter":
    """The same for the application, which describes it."""
    from fastapi import APIRouter, Response  # noqa: PLC0415 - slow to load, and not needed by the rest
    from fastapi import Request as AppRequest  # noqa: PLC0415

    from penstock.doors.web.support.requests import respond_by  # noqa: PLC0415
    from penstock.doors.web.support.responses import describe, reference_to  # noqa: PLC0415

    router, take = APIRouter(tags=["publish"]), Publisher(web.broker).take
    either = {"oneOf": [{"required": ["data"]}, {"required": ["payload"]}]}
    message = {"allOf": [reference_to(NewMessage), either]}
    responses = describe(ReceiptShape, *REFUSALS, text="Published, and stored if it is to be.")
    responses[200]["content"][JSON]["schema"] = {
        "oneOf": [reference_to(ReceiptShape), reference_to(ReceiptsShape)]
    }
    body = {
        JSON: {"schema": {"oneOf": [message, {"type": "array", "items": message, "maxItems": MAX_MESSAGES}]}},
        "*/*": {"schema": {"type": "string", "format": "binary"}},
    }

    @router.post(
        PATH,
        summary="Publish one message, or a list of them",
        description=ABOUT,
        responses=responses,
        openapi_extra={
            "parameters": PARAMETERS,
            "requestBody": {"required": True, "content": body},
        },
    )
    async def publish(request: AppRequest) -> Response:
        return await respond_by(take, request)

    return router
