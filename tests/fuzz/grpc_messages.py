"""Request messages of any kind at random: fields that fit, fields that do not, and damage on top."""

from collections.abc import Callable
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from penstock.wire.sidecar.messages import health, nexusd, penstock, reflection, reflection_v1alpha
from tests.fuzz.damage import damaged

SIDECAR, OWN = "/nexusd.sidecar.SidecarService/", "/penstock.v1.Penstock/"
REFLECTION = "ServerReflection/ServerReflectionInfo"
REQUESTS: dict[str, type[Message]] = {
    f"{SIDECAR}Publish": nexusd.PublishRequest,
    f"{SIDECAR}Subscribe": nexusd.SubscribeRequest,
    f"{SIDECAR}ResumeSubscribe": nexusd.ResumeSubscribeRequest,
    f"{SIDECAR}Unsubscribe": nexusd.UnsubscribeRequest,
    f"{SIDECAR}GetTopics": nexusd.GetTopicsRequest,
    f"{SIDECAR}GetPeers": nexusd.GetPeersRequest,
    f"{OWN}Publish": penstock.PublishBatch,
    f"{OWN}Subscribe": penstock.SubscribeRequest,
    f"{OWN}Why": penstock.WhyRequest,
    "/grpc.health.v1.Health/Check": health.HealthCheckRequest,
    "/grpc.health.v1.Health/List": health.HealthListRequest,
    "/grpc.health.v1.Health/Watch": health.HealthCheckRequest,
    f"/grpc.reflection.v1.{REFLECTION}": reflection.ServerReflectionRequest,
    f"/grpc.reflection.v1alpha.{REFLECTION}": reflection_v1alpha.ServerReflectionRequest,
}
"""What each method expects."""

TEXTS = (
    *("a", "a/b", "a/b/c", "b", "+", "#", "a/+", "a/#", "+/b", "$share/g/a/#", "$SYS/#", "$penstock/drops"),
    *("", "/", "//", "a/#/b", "a+", "\0", "a\0", "é", "e\u0301", "\ud7ff", "\U0001f600", " ", "..", "%00"),
    *("nexusd.sidecar.SidecarService", "penstock.v1.Penstock", "penstock/v1.proto", "grpc.health.v1.Health"),
    *("application/json", "x" * 300, "a/" * 200, "AQ", "sub-0-1-x-0", "-1", "9" * 30),
)
NUMBERS = (
    0,
    1,
    2,
    3,
    10,
    100,
    127,
    128,
    1_000,
    65_536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    -1,
    -(2**31),
    -(2**63),
)
SIZES = (0, 0, 1, 5, 100, 128, 128, 511, 512, 4_096, 5_000)
RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-1, 9),
}
DEEPEST = 4


class MessageMaker:
    """Makes messages; what servers have answered can be put into them.

    Args:
        learned: texts that mean something to the server, as ids and cursors.
    """

    def __init__(self, dice: Random, learned: list[str]) -> None:
        self._dice = dice
        self._learned = learned

    def make(self, kind: type[Message]) -> bytes:
        """One request, good or bad."""
        dice = self._dice
        if dice.random() < 0.03:
            return dice.randbytes(dice.choice((0, 1, 2, 10, 100, 1_000)))
        message = kind()
        self._fill(message, DEEPEST)
        data = message.SerializeToString()
        return damaged(data, dice) if dice.random() < 0.3 else data

    def _fill(self, message: Any, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            if self._dice.random() < 0.3 or not depth:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                self._fill_map(getattr(message, field.name), field)
            elif field.is_repeated:
                self._fill_list(getattr(message, field.name), field, depth)
            elif field.message_type is not None:
                part = getattr(message, field.name)
                part.SetInParent()
                self._fill(part, depth - 1)
            else:
                setattr(message, field.name, self._value(field))

    def _fill_list(self, items: Any, field: FieldDescriptor, depth: int) -> None:
        for _ in range(self._dice.choice((0, 1, 1, 2, 3, 20))):
            if field.message_type is not None:
                self._fill(items.add(), depth - 1)
            else:
                items.append(self._value(field))

    def _fill_map(self, items: Any, field: FieldDescriptor) -> None:
        assert field.message_type is not None
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for _ in range(self._dice.choice((0, 1, 2, 5))):
            items[self._value(key)] = self._value(value)

    def _value(self, field: FieldDescriptor) -> Any:
        make = _MAKERS.get(field.cpp_type, MessageMaker._number)
        return make(self, field)

    def _text(self, field: FieldDescriptor) -> Any:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._dice.randbytes(self._dice.choice(SIZES))
        if self._learned and self._dice.random() < 0.4:
            return self._dice.choice(self._learned)
        return self._dice.choice(TEXTS)

    def _flag(self, field: FieldDescriptor) -> bool:
        return self._dice.random() < 0.5

    def _number(self, field: FieldDescriptor) -> int:
        low, high = RANGES[field.cpp_type]
        return min(max(self._dice.choice(NUMBERS), low), high)


_MAKERS: dict[int, Callable[[MessageMaker, FieldDescriptor], Any]] = {
    FieldDescriptor.CPPTYPE_STRING: MessageMaker._text,
    FieldDescriptor.CPPTYPE_BOOL: MessageMaker._flag,
}
