"""The maintenance page: JSON over a WebSocket, as a browser speaks it."""

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import json

from penstock.cli.demo.plant import HOT_C
from penstock.cli.demo.server import DemoServer
from penstock.cli.demo.tally import Tally

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

NOTES = "plant/maintenance"
NOTE_EVERY_S = 0.25


async def watch_ovens(server: DemoServer, tally: Tally, stopping: asyncio.Event) -> None:
    """Look at the ovens, and publish a note when one of them is hot."""
    from websockets.asyncio.client import connect  # noqa: PLC0415 - only for who runs the demonstration

    async with connect(server.websocket_address) as socket:
        await subscribe(socket, "plant/+/temperature")
        waiting, next_at = 0, 0.0
        while waiting or not stopping.is_set():
            frame = await _receive(socket)
            if frame.get("type") == "ack":
                tally.published["web"] += 1
                waiting -= 1
            elif _is_hot(frame) and not stopping.is_set() and asyncio.get_running_loop().time() >= next_at:
                next_at = asyncio.get_running_loop().time() + NOTE_EVERY_S
                waiting += 1
                await socket.send(json.encode(_note(frame)).decode())


async def subscribe(socket: "ClientConnection", filter: str, after: str | None = None) -> None:
    """Subscribe, and wait until that is confirmed."""
    await socket.recv()  # the greeting
    wish = {"type": "subscribe", "filter": filter, **({} if after is None else {"after": after})}
    await socket.send(json.encode(wish).decode())
    answer = json.decode(await socket.recv())
    if answer["type"] != "ack":
        raise ConnectionError(f"the server does not let the page subscribe: {answer}")


async def _receive(socket: "ClientConnection") -> dict[str, Any]:
    """The next frame; an empty one after a moment without."""
    try:
        async with asyncio.timeout(0.2):
            return dict(json.decode(await socket.recv()))
    except TimeoutError:
        return {}


def _is_hot(frame: dict[str, Any]) -> bool:
    return frame.get("type") == "event" and frame["data"]["value"] > HOT_C


def _note(event: dict[str, Any]) -> dict[str, Any]:
    machine = event["topic"].split("/")[1]
    note = {"machine": machine, "text": f"{event['data']['value']} C: check the damper"}
    return {"type": "publish", "topic": NOTES, "data": note}
