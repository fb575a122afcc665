"""A small program to be tested: it raises an alarm when an oven is too hot."""

import json

import penstock

LIMIT_C = 250.0


async def watch(address: str) -> None:
    """Publish an alarm for every reading above the limit, forever."""
    async with penstock.connect(address) as client, client.subscribe("ovens/+/celsius") as readings:
        await client.publish("alarms/ready", "yes", retain=True)
        async for reading in readings:
            if float(reading.text) > LIMIT_C:
                oven = reading.topic.split("/")[1]
                await client.publish(f"alarms/{oven}", json.dumps({"celsius": float(reading.text)}))
