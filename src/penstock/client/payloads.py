"""Typed payloads: values as JSON, with the types of the application.

`msgspec` encodes and checks dataclasses, `TypedDict`s, `msgspec.Struct`s, dates and enums; models of Pydantic
do it themselves.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, overload

import msgspec

from penstock.errors import InvalidPayload

JSON_TYPE = "application/json"
T = TypeVar("T")


def encode_json(value: Any) -> bytes:
    """A value as JSON.

    Raises:
        TypeError: a part of it has no JSON form.
    """
    return msgspec.json.encode(value, enc_hook=_plain_value)


def decode_json(payload: bytes, type: Any) -> Any:
    """A payload as a value of a type.

    Raises:
        InvalidPayload: it is not JSON, or not of this type.
    """
    try:
        if hasattr(type, "model_validate_json"):
            return type.model_validate_json(payload)
        return msgspec.json.decode(payload, type=type)
    except ValueError as error:  # of msgspec, of Pydantic, or for bytes that are not UTF-8
        raise InvalidPayload(f"the payload is not the JSON that was expected: {error}") from error


def _plain_value(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")


class JsonPayload:
    """Message whose payload may be JSON."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def payload(self) -> bytes: ...

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, type: type[T]) -> T: ...

    def json(self, type: Any = Any) -> Any:
        """Payload as a JSON value, of a type if one is given: a dataclass, a `TypedDict`, a Pydantic model.

        Raises:
            InvalidPayload: it is not JSON, or not of this type.
        """
        return decode_json(self.payload, type)


class PublishOptions(TypedDict, total=False):
    """Options of a publish over gRPC, beside topic and payload."""

    content_type: str | None
    retain: bool
    ttl_s: float | None
    correlation_id: bytes | str | None
    response_topic: str | None
    message_id: str | None
    properties: Sequence[tuple[str, str]]
