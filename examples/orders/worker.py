"""Worker that ships orders: stopped or killed, it resumes with the order that it had not finished."""

import asyncio
import json
import os

import penstock
from penstock.client import CursorFile


async def work(address: str, cursor: CursorFile) -> None:
    """Ship orders forever; an order counts as done when the next one is taken."""
    async with (
        penstock.connect(address, client_id="worker") as client,
        client.subscribe("orders/+", after=cursor) as orders,
    ):
        print("waiting for orders", flush=True)
        async for order in orders:
            wanted = json.loads(order.payload)
            print(f"shipping {wanted['count']} x {wanted['item']} (order {order.sequence})", flush=True)


if __name__ == "__main__":
    place = CursorFile(os.environ.get("CURSOR", "orders.cursor"))
    asyncio.run(work(os.environ.get("PENSTOCK", "localhost:5672"), place))
