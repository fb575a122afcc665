"""Machines of the plant and the readings of their sensors; the same in every run."""

import math
from collections.abc import Iterator
from random import Random

from msgspec import Struct, json

FILTER = "plant/#"
"""Everything that the plant publishes."""
HOT_C = 240.0
"""An oven above this temperature needs maintenance."""


class Sensor(Struct, frozen=True):
    """A sensor: a level with some noise and a slow wave."""

    name: str
    unit: str
    level: float
    noise: float
    wave: float = 0.0


class Machine(Struct, frozen=True):
    """A machine with its sensors."""

    name: str
    sensors: tuple[Sensor, ...]

    def topic(self, sensor: Sensor) -> str:
        """Topic of a sensor."""
        return f"plant/{self.name}/{sensor.name}"

    def readings(self) -> Iterator[list[tuple[str, bytes]]]:
        """Endless rounds of topics and payloads."""
        dice = Random(self.name)
        step = 0
        while True:
            yield [(self.topic(sensor), _reading(sensor, step, dice)) for sensor in self.sensors]
            step += 1


def _reading(sensor: Sensor, step: int, dice: Random) -> bytes:
    value = sensor.level + sensor.wave * math.sin(step / 10) + dice.gauss(0, sensor.noise)
    return json.encode({"value": round(value, 2), "unit": sensor.unit})


PUMP = (Sensor("pressure", "bar", 4.2, 0.1), Sensor("flow", "l/min", 118.0, 3.0))
PRESS = (Sensor("force", "kN", 850.0, 12.0), Sensor("vibration", "mm/s", 2.1, 0.3))
OVEN = (Sensor("temperature", "C", 221.0, 1.5, wave=12.0),)
HOT_OVEN = (Sensor("temperature", "C", 229.0, 1.5, wave=18.0),)

MACHINES = (
    *(Machine(f"pump-{number}", PUMP) for number in range(1, 5)),
    *(Machine(f"press-{number}", PRESS) for number in range(1, 4)),
    Machine("oven-1", OVEN),
    Machine("oven-2", HOT_OVEN),
)
