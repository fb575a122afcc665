"""Work orders: sent to a stream over plain HTTP, and received by workers who compete for them."""

import asyncio
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from uuid import uuid4

from msgspec import json

from penstock.cli.demo.server import DemoServer
from penstock.cli.demo.tally import Tally

STREAM = "plant/orders"
WORKERS = ("anna", "boris", "chen")
SEND_EVERY_S = 0.15
WAIT_S = 1
ANSWER_S = 30.0


async def send_orders(server: DemoServer, tally: Tally, stopping: asyncio.Event) -> None:
    """Send one order after the other until the plant stops."""
    while not stopping.is_set():
        order = {"order": tally.published["streams"] + 1, "task": "replace seal", "machine": "pump-3"}
        await asyncio.to_thread(_send, server.http_address, order)
        tally.published["streams"] += 1
        await asyncio.sleep(SEND_EVERY_S)


async def receive_orders(server: DemoServer, worker: str, tally: Tally, stopping: asyncio.Event) -> None:
    """Take orders as one of the workers, until the plant stops and none is left."""
    while True:
        has_stopped = stopping.is_set()
        if await asyncio.to_thread(_receive, server.http_address):
            tally.orders[worker] += 1
        elif has_stopped:
            return


def _send(address: str, order: dict[str, object]) -> None:
    body = {
        "streamId": STREAM,
        "messageUuid": str(uuid4()),
        "message": order,
        "blockingSendTimeoutSeconds": WAIT_S,
    }
    with urlopen(Request(f"{address}/api/v1/streams/send", json.encode(body)), timeout=ANSWER_S):
        pass


def _receive(address: str) -> bool:
    """Wait for one order; False if there was none in time."""
    query = urlencode({"streamId": STREAM, "timeoutSeconds": WAIT_S})
    try:
        with urlopen(f"{address}/api/v1/streams/receive?{query}", timeout=ANSWER_S) as answer:
            return bool(json.decode(answer.read()))
    except HTTPError as error:
        with error:
            if error.code == HTTPStatus.FAILED_DEPENDENCY:
                return False
            raise
