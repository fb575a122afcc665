"""Typed payloads: values of the application as JSON, and back."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from penstock.client import ReceivedMessage, ReceivedRun
from penstock.client.payloads import encode_json
from penstock.errors import InvalidPayload


@dataclass
class Reading:
    value: float
    at: datetime


class Model(BaseModel):
    name: str
    at: datetime


AT = datetime(2026, 1, 31, tzinfo=UTC)


def received(payload: bytes) -> ReceivedMessage:
    return ReceivedMessage(payload, 1, None, ReceivedRun("a", (payload,), 1))


@pytest.mark.parametrize("value", [{"a": [1, None]}, "text", 17, None, [True]])
def test_plain_values_come_back(value: Any) -> None:
    assert received(encode_json(value)).json() == value


def test_types_of_the_application_come_back() -> None:
    reading = Reading(17.5, AT)
    assert received(encode_json(reading)).json(Reading) == reading
    assert received(encode_json([reading])).json(list[Reading]) == [reading]


def test_models_of_pydantic_come_back() -> None:
    model = Model(name="pond", at=AT)
    assert received(encode_json(model)).json(Model) == model
    assert received(encode_json({"models": [model]})).json()["models"][0]["name"] == "pond"


@pytest.mark.parametrize("type", [Any, Reading, Model, int])
@pytest.mark.parametrize("payload", [b"", b"text", b"\xff", b'{"value": "x"}'])
def test_another_payload_is_refused(payload: bytes, type: Any) -> None:
    if type is Any and payload.startswith(b"{"):
        return
    with pytest.raises(InvalidPayload, match="not the JSON that was expected"):
        received(payload).json(type)


def test_a_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        encode_json({"a": object()})
