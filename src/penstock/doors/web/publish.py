"""POST /api/v1/publish: one message or many, answered when they are safe.

The handler is called by the listener itself, for every message of whoever publishes one at a time. A list is
published whole or not at all. A publisher that is held back under `block` waits for its answer.
"""

from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, json

from penstock.core.broker import Broker, Receipt, Refused
from penstock.core.cursor import Cursor
from penstock.core.ports import Position
from penstock.doors.http.problems import PROBLEM, headers_of, problem_of, status_of
from penstock.doors.http.requests import Request
from penstock.doors.http.routes import Routes
from penstock.doors.web.bare import FORM, PARAMETERS, read_bytes, topic_of
from penstock.doors.web.context import Web
from penstock.doors.web.incoming import JSON, MAX_MESSAGES, NewMessage, read_message, read_messages
from penstock.doors.web.sending import send, send_all
from penstock.errors import (
    InvalidPayload,
    InvalidTopic,
    PenstockError,
    QuotaExceeded,
    StorageUnavailable,
    TooLarge,
    UnsupportedMedia,
)
from penstock.model import Run

if TYPE_CHECKING:
    from fastapi import APIRouter

PATH = "/api/v1/publish"
ABOUT = """\
As JSON, a message has a topic and either `data` or `payload`; a list of messages is published whole or not
at all. Any other body is a payload as it is, with its topic in the query or in `Penstock-Topic`. The answer
comes when the messages are safe. A message with an id that the same user published to its topic lately is not
published again, and gets the receipt of that time."""
REFUSALS: tuple[type[PenstockError], ...] = (
    InvalidTopic,
    InvalidPayload,
    TooLarge,
    UnsupportedMedia,
    QuotaExceeded,
    StorageUnavailable,
)
ERRORS_TOLD = 100
"""How many of the messages that were not taken are named, at most."""


class ReceiptShape(Struct, omit_defaults=True):
    """What became of a message."""

    topic: str
    sequence: int
    epoch: int
    cursor: str
    subscribers: int
    """Who was there to get it, those who are away included; a shared group counts once."""
    stored: bool
    """It outlives the server."""
    message_id: str | None = None
    duplicate: bool = False
    """It was published before; this is the receipt of that time."""


class ReceiptsShape(Struct):
    """What became of each message of a list, in its order."""

    receipts: list[ReceiptShape]


_encoder = json.Encoder()


class Publisher:
    """Publishes what requests bring, and answers them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def take(self, request: Request) -> None:
        """Publish what a request brings; it is answered now or later."""
        try:
            brought = self._read(request)
        except (PenstockError, Refused) as error:
            _refuse(request, error)
            return
        if isinstance(brought, Run):
            send(self._broker, request, brought, self._answer, Request.fail)
        else:
            send_all(self._broker, request, brought, self._answer_all, _refuse)

    def _read(self, request: Request) -> Run | list[Run]:
        """The message of a request, or its messages if they came as a list."""
        topic = topic_of(request)
        if topic is not None:
            return read_bytes(topic, request.headers, request.body, self._broker.settings.topic)
        media = request.header(b"content-type")
        if media is not None and media != JSON:
            _check_media(media)
        if request.body.lstrip()[:1] == b"[":
            return read_messages(request.body, self._broker.settings.topic)
        return read_message(request.body, self._broker.settings.topic)

    def _answer(self, request: Request, receipt: Receipt) -> None:
        request.respond(200, _encoder.encode(self._shape(receipt)))

    def _answer_all(self, request: Request, receipts: list[Receipt]) -> None:
        shapes = [self._shape(receipt) for receipt in receipts]
        request.respond(200, _encoder.encode(ReceiptsShape(shapes)))

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
    told = [
        {"index": at, "code": each.code, "detail": str(each)}
        for at, each in islice(error.errors.items(), ERRORS_TOLD)
    ]
    problem = problem_of(type(first)(f"nothing was published: message {index}: {first}"), errors=told)
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

    from penstock.doors.web.answers import describe, reference_to  # noqa: PLC0415
    from penstock.doors.web.hot import answer_by  # noqa: PLC0415

    router, take = APIRouter(tags=["publish"]), Publisher(web.broker).take
    either = {"oneOf": [{"required": ["data"]}, {"required": ["payload"]}]}
    message = {"allOf": [reference_to(NewMessage), either]}
    answers = describe(ReceiptShape, *REFUSALS, text="Published, and stored if it is to be.")
    answers[200]["content"][JSON]["schema"] = {
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
        responses=answers,
        openapi_extra={
            "parameters": PARAMETERS,
            "requestBody": {"required": True, "content": body},
        },
    )
    async def publish(request: AppRequest) -> Response:
        return await answer_by(take, request)

    return router
