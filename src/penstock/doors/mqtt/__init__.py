"""MQTT 3.1.1 and 5.0, adapted to core."""

from penstock.doors.mqtt.door import MqttDoor
from penstock.doors.mqtt.settings import MqttSettings

__all__ = ["MqttDoor", "MqttSettings"]
