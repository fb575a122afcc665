"""Four sensors in a greenhouse, over MQTT at QoS 1."""

import asyncio
import json
import random
import sys

from penstock.client import MqttClient


async def publish_readings(port: int, rounds: int) -> None:
    """Publish one reading of every sensor in each round, every tenth of a second."""
    async with MqttClient.connect(port=port, client_id="greenhouse") as client:
        for _ in range(rounds):
            for sensor in ("north", "south", "east", "west"):
                reading = {"celsius": round(random.gauss(21, 2), 1), "humidity": random.randint(40, 70)}
                await client.publish(f"greenhouse/{sensor}", json.dumps(reading), qos=1)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(publish_readings(int(sys.argv[1]) if len(sys.argv) > 1 else 1883, rounds=10))
