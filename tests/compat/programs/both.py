"""Publishes and subscribes in one loop: python both.py ADDRESS COUNT."""

import asyncio
import sys

from nexusd_client import AsyncNexusdClient, ReconnectConfig


async def publish(client: AsyncNexusdClient, count: int) -> None:
    for number in range(count):
        await client.publish("async/counter", str(number).encode())
        await asyncio.sleep(0.01)


async def main(address: str, count: int) -> None:
    async with AsyncNexusdClient(address, reconnect_config=ReconnectConfig(max_attempts=5)) as client:
        publishing: asyncio.Task[None] | None = None
        seen = 0
        async for message in client.subscribe(["async/ready", "async/counter"]):
            if message.topic == "async/ready":
                publishing = publishing or asyncio.create_task(publish(client, count))
                continue
            print(message.sequence_number, message.payload_as_string(), flush=True)
            seen += 1
            if seen == count:
                break
        assert publishing is not None
        await publishing


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
