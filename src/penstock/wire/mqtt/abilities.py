"""Publish capabilities of a server (maximum QoS, retain), and the shapes of accepted publishes.

A shape is found by a packet's first byte, in a table that is made once: the hot loop needs no other look-up.
"""

from functools import lru_cache

from msgspec import Struct

from penstock.model import Door, Properties
from penstock.runs import Shape
from penstock.wire.mqtt.decode import check_publish_flags
from penstock.wire.mqtt.packets import Version
from penstock.wire.mqtt.reasons import MalformedPacket, QosNotSupported, RetainNotSupported

LAYOUTS = {Version.V311: "mqtt-3", Version.V5: "mqtt-5"}
"""Frames that may be passed on as they are to a subscriber of the same version."""
DRESSED = "mqtt-5-properties"
"""Frames with properties: some of them are the receiver's own, so they are always made again."""


def _shapes(layout: str) -> tuple[Shape | None, ...]:
    """A shape for each first byte; None if it is not a PUBLISH, or its flags are forbidden."""
    shapes: list[Shape | None] = []
    for flags in range(16):
        try:
            check_publish_flags(flags)
        except MalformedPacket:
            shapes.append(None)
        else:
            known = shapes[flags & 7] if flags & 8 else None  # DUP says nothing about the message
            qos, retain = flags >> 1 & 3, bool(flags & 1)
            is_plain = layout != DRESSED and not retain
            shapes.append(known or Shape(layout, Door.MQTT, qos, retain, is_plain))
    return (None,) * 0x30 + tuple(shapes) + (None,) * 0xC0


SHAPES = {version: _shapes(layout) for version, layout in LAYOUTS.items()}
NO_SHAPES: tuple[Shape | None, ...] = (None,) * 256
DRESSED_SHAPES = _shapes(DRESSED)


class Abilities(Struct, frozen=True):
    """Publishes that a server accepts, as announced to MQTT 5 clients in CONNACK."""

    maximum_qos: int = 2
    retain: bool = True
    checks_payload_format: bool = True

    def check(self, shape: Shape) -> None:
        """Refuse a publish beyond the announced capabilities."""
        if shape.qos > self.maximum_qos:
            raise QosNotSupported(f"QoS {shape.qos}, at most {self.maximum_qos} is taken")  # MQTT-3.2.2-11
        if shape.retain and not self.retain:
            raise RetainNotSupported("retained messages are not supported")  # MQTT-3.2.2-14

    def misses_format(self, properties: Properties | None, payload: bytes) -> bool:
        """True if a payload is said to be text and is not."""
        if properties is None or properties.payload_format != 1 or not self.checks_payload_format:
            return False
        try:
            str(payload, "utf-8")
        except UnicodeDecodeError:
            return True
        return False


ALL_ABILITIES = Abilities()


@lru_cache
def quick_shapes(version: Version, abilities: Abilities) -> tuple[Shape | None, ...]:
    """The shapes that the hot loop may take without asking."""
    return tuple(
        shape
        if shape is not None and shape.qos <= abilities.maximum_qos and (abilities.retain or not shape.retain)
        else None
        for shape in SHAPES[version]
    )
