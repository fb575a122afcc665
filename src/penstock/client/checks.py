"""What no server could make sense of is refused before anything is sent."""

from penstock.client.authentication import Login
from penstock.errors import InvalidTopic
from penstock.wire.mqtt.packets import Version
from penstock.wire.mqtt.properties import NO_PROPERTIES, PacketProperties


def check_topic(topic: str, properties: PacketProperties) -> None:
    """Refuse a topic that nobody can publish to."""
    if not topic and properties.topic_alias is None:
        raise InvalidTopic("a topic is not empty")
    if any(mark in topic for mark in "+#\0"):
        raise InvalidTopic("a topic holds no +, # or U+0000")


def check_qos(qos: int) -> None:
    """Refuse a QoS that is none."""
    if qos not in (0, 1, 2):
        raise ValueError(f"QoS is 0, 1 or 2, not {qos}")


def check_version(version: Version, *given: PacketProperties) -> None:
    """Refuse properties in a version that has none."""
    if version is Version.V311 and any(properties != NO_PROPERTIES for properties in given):
        raise ValueError("properties need MQTT 5")


def check_login(
    method: str,
    user: str | None,
    password: str | bytes | None,
    version: Version,
    properties: PacketProperties,
) -> Login:
    """Refuse a way of authentication that does not go with the rest."""
    if version is Version.V311:
        raise ValueError("authentication by a method needs MQTT 5")
    if properties.authentication_method is not None:
        raise ValueError("the properties name a method of authentication already")
    return Login.make(method, user, password)
