"""MQTT 3.1.1 and 5.0, adapted to core. The door itself is in `door.py`, which settings need not load."""

from penstock.doors.mqtt.settings import MqttSettings

__all__ = ["MqttSettings"]
