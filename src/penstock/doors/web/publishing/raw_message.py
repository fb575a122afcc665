"""Raw publish: the body of a request is the payload; query and headers have the rest."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from penstock.common.topics import TopicLimits
from penstock.core.publishing.properties import MAX_TTL_MS, check_properties
from penstock.doors.web.publishing.json_messages import make_run
from penstock.errors import InvalidRequest
from penstock.model import Properties, Run
from penstock.net.http.request import Request

FORM = "application/x-www-form-urlencoded"
"""Content type that curl sends by default; it is ignored."""
PREFIX = b"penstock-"
_TEXT: dict[str, Any] = {"type": "string"}
_TOPIC = _TEXT | {"format": "topic", "minLength": 1}
PARAMETERS: list[dict[str, Any]] = [
    {"name": name, "in": place, "required": False, "description": text, "schema": schema}
    for name, place, schema, text in (
        ("topic", "query", _TOPIC, "The topic, if the body is the payload and nothing else."),
        ("Penstock-Topic", "header", _TOPIC, "The same as percent-encoded UTF-8, like all texts here."),
        ("Penstock-Qos", "header", {"type": "integer", "minimum": 0, "maximum": 2}, "1 if it is not given."),
        ("Penstock-Retain", "header", {"type": "boolean"}, "Keep it as the value of its topic."),
        ("Penstock-Ttl-Ms", "header", {"type": "integer", "minimum": 1}, "How long it lives."),
        ("Penstock-Message-Id", "header", _TEXT, "Published once, however often it is sent."),
        ("Penstock-Correlation-Id", "header", _TEXT, "Travels with the payload."),
        ("Penstock-Response-Topic", "header", _TOPIC, "Travels with the payload."),
        ("Penstock-Property", "header", _TEXT, "`name=value`; the header may be repeated."),
    )
]
"""OpenAPI parameters."""
_WISHES = ("topic", "qos", "retain", "ttl-ms", "message-id", "correlation-id", "response-topic")
_YES_OR_NO = {"true": True, "1": True, "false": False, "0": False}


def topic_of(request: Request) -> str | None:
    """The topic of a message whose payload is the body; None if it is in the body.

    Raises:
        InvalidRequest: it is given twice, or something else is given without it.
    """
    is_told = any(name.startswith(PREFIX) for name, _ in request.headers)
    if not is_told and not request.query:
        return None
    parameters = request.parameters()
    topic, header = parameters.pop("topic", None), request.header(b"penstock-topic")
    if parameters:
        raise InvalidRequest(f"there is no parameter {next(iter(parameters))!r} here")
    if topic is not None and header is not None:
        raise InvalidRequest("the topic is given twice")
    if topic is None and header is None and is_told:
        raise InvalidRequest("with headers of this kind the topic is in the query or in Penstock-Topic")
    return topic if header is None else _text_of("topic", header)


def read_bytes(topic: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, limits: TopicLimits) -> Run:
    """The run of a message whose payload is the body.

    Raises:
        PenstockError: one of its headers says something that cannot be.
    """
    wishes, pairs = _wishes_of(headers)
    correlation_id = wishes.get("correlation-id")
    properties = Properties(
        content_type=_content_type(headers),
        correlation_id=None if correlation_id is None else correlation_id.encode(),
        response_topic=wishes.get("response-topic"),
        message_id=wishes.get("message-id"),
        user=tuple(pairs),
    )
    check_properties(properties, limits)
    qos = _number("qos", wishes.get("qos", "1"), 0, 2)
    ttl_ms = _number("ttl-ms", wishes["ttl-ms"], 1, MAX_TTL_MS) if "ttl-ms" in wishes else 0
    retain = wishes.get("retain", "false").lower()
    if retain not in _YES_OR_NO:
        raise InvalidRequest("Penstock-Retain is true or false")
    return make_run(topic, body, qos, _YES_OR_NO[retain], ttl_ms / 1000, properties)


def _wishes_of(headers: Sequence[tuple[bytes, bytes]]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the `Penstock-` headers by name without the prefix, and the properties among them."""
    wishes: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for header, value in headers:
        if not header.startswith(PREFIX):
            continue
        name = header.removeprefix(PREFIX).decode("latin-1")
        if name == "property":
            key, equals, rest = value.decode("latin-1").partition("=")
            if not equals:
                raise InvalidRequest("Penstock-Property is name=value")
            pairs.append((_text_of(name, key), _text_of(name, rest)))
        elif name not in _WISHES:
            raise InvalidRequest(f"there is no header Penstock-{name.title()}")
        elif name in wishes:
            raise InvalidRequest(f"Penstock-{name.title()} was given twice")
        else:
            wishes[name] = _text_of(name, value.decode("latin-1"))
    return wishes, pairs


def _text_of(name: str, value: str) -> str:
    """Decode the text of a `Penstock-` header, percent-encoded where it is not plain ASCII."""
    try:
        return unquote(value.encode("ascii").decode(), errors="strict")
    except UnicodeError:
        raise InvalidRequest(f"Penstock-{name.title()} is percent-encoded UTF-8") from None


def _content_type(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    for header, value in headers:
        if header == b"content-type":
            return None if value.startswith(FORM.encode()) else value.decode("latin-1")
    return None


def _number(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise InvalidRequest(f"Penstock-{name.title()} is a number from {least} to {most}")
    return int(text)
