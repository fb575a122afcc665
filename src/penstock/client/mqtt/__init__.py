"""MQTT client for asyncio, versions 3.1.1 and 5.0."""

from penstock.client.mqtt.client import MqttClient
from penstock.client.mqtt.inbox import Messages
from penstock.client.mqtt.stream import PacketStream

__all__ = ["Messages", "MqttClient", "PacketStream"]
