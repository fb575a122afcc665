"""Penstock's public client API: what an application imports."""

from penstock.client.errors import ConnectionLost, ConnectionRefused, RequestRefused
from penstock.client.mqtt import Messages, MqttClient, PacketStream
from penstock.wire.mqtt.packets import Publish, Request, Version, Will
from penstock.wire.mqtt.properties import PacketProperties
from penstock.wire.mqtt.reasons import ReasonCode

__all__ = [
    "ConnectionLost",
    "ConnectionRefused",
    "Messages",
    "MqttClient",
    "PacketProperties",
    "PacketStream",
    "Publish",
    "ReasonCode",
    "Request",
    "RequestRefused",
    "Version",
    "Will",
]
