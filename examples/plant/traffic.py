"""Live traffic: programs of the plant at all four doors, and what they count.

Sensors use MQTT, the line controller gRPC, the maintenance page WebSocket, and work orders HTTP long poll.
"""

import asyncio
from collections import Counter
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from uuid import uuid4

from msgspec import Struct, field, json
from websockets.asyncio.client import ClientConnection, connect

import penstock
from penstock.client import MqttClient, Outgoing, PacketProperties, Subscription

from .machines import FILTER, HOT_C, MACHINES, Machine
from .screen import LiveTable, PlantError, Screen
from .server import PlantServer

DOORS = {
    "mqtt": f"MQTT: sensors of {len(MACHINES)} machines",
    "sidecar": "gRPC: line controller",
    "web": "WebSocket: maintenance page",
    "streams": "HTTP long poll: work orders",
}
"""Programs by door, with the server's name of the door."""
COLUMNS = ("door and program", "published", "delivered")
POLL_S = 0.25

READING_EVERY_S = 0.05
STATE_EVERY_S = 0.25
HISTORIAN_READS = 300
"""Messages that the historian reads before it is switched off."""
LEAST_MESSAGES = 4 * HISTORIAN_READS
"""On a slow machine the plant works until this many are published."""

NOTES = "plant/maintenance"
NOTE_EVERY_S = 0.25

ORDERS = "plant/orders"
WORKERS = ("anna", "boris", "chen")
ORDER_EVERY_S = 0.15
LONG_POLL_S = 1
HTTP_TIMEOUT_S = 30.0

Key = tuple[str, int]
"""Identifies a message: its topic, and its sequence there."""


class Counts(Struct):
    """Counts of the programs, to be compared with those of the server."""

    published: Counter[str] = field(default_factory=Counter)
    """By door: messages that the server has acknowledged."""
    orders: Counter[str] = field(default_factory=Counter)
    """By worker: work orders received."""
    historian: list[Key] = field(default_factory=list)
    """Messages that the historian has read over MQTT."""
    cursor: str = ""
    """Cursor of the last of these."""


async def run_plant(server: PlantServer, seconds: float, screen: Screen) -> Counts:
    """Run all programs for this long, or until there are enough messages; returns their counts."""
    counts, stopping, is_subscribed = Counts(), asyncio.Event(), asyncio.Event()
    with screen.live_table() as table:
        async with asyncio.TaskGroup() as tasks:
            historian = tasks.create_task(_run_historian(server, counts, is_subscribed))
            await is_subscribed.wait()  # it has to see every message
            for machine in MACHINES:
                tasks.create_task(_run_sensors(server, machine, counts, stopping))
            tasks.create_task(_run_controller(server, counts, stopping))
            tasks.create_task(_run_page(server, counts, stopping))
            tasks.create_task(_send_orders(server, counts, stopping))
            for worker in WORKERS:
                tasks.create_task(_receive_orders(server, worker, counts, stopping))
            await _show_counts(server, seconds, counts, historian, table)
            stopping.set()
    return counts


def count_at_doors(server: PlantServer) -> dict[str, dict[str, int]]:
    """Messages that the server has accepted and delivered at each door."""
    with server.client() as client:
        return dict(client.metrics(limit=0)["doors"])


def door_rows(counted: dict[str, dict[str, int]]) -> list[tuple[Any, ...]]:
    """The same as rows of a table."""
    rows: list[tuple[Any, ...]] = [
        (program, counted[door]["published"], counted[door]["delivered"]) for door, program in DOORS.items()
    ]
    return [*rows, ("all", *(sum(row[column] for row in rows) for column in (1, 2)))]


async def _show_counts(
    server: PlantServer, seconds: float, counts: Counts, historian: "asyncio.Task[None]", table: LiveTable
) -> None:
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while clock() < deadline or not historian.done() or counts.published.total() < LEAST_MESSAGES:
        counted = await asyncio.to_thread(count_at_doors, server)
        table.update(COLUMNS, door_rows(counted))
        await asyncio.sleep(POLL_S)


async def _is_stopped(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait this long; True if the plant was stopped meanwhile."""
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return False
    return True


# MQTT: sensors and the historian


async def _run_sensors(
    server: PlantServer, machine: Machine, counts: Counts, stopping: asyncio.Event
) -> None:
    """Publish the readings of one machine at QoS 1."""
    async with MqttClient.connect(port=server.mqtt_port, client_id=machine.name) as client:
        for readings in machine.readings():
            for topic, payload in readings:
                await client.publish(topic, payload, qos=1)
                counts.published["mqtt"] += 1
            if await _is_stopped(stopping, READING_EVERY_S):
                return


async def _run_historian(server: PlantServer, counts: Counts, is_subscribed: asyncio.Event) -> None:
    """Read everything at QoS 1, with sequences and cursors, until the historian is switched off."""
    with_cursors = PacketProperties(user=(("penstock-meta", "1"),))
    async with MqttClient.connect(port=server.mqtt_port, client_id="historian") as client:
        await client.subscribe(FILTER, qos=1, properties=with_cursors)
        is_subscribed.set()
        while len(counts.historian) < HISTORIAN_READS:
            message = await client.messages.receive()
            meta = dict(message.properties.user)
            counts.historian.append((message.topic, int(meta["ps-seq"])))
            counts.cursor = meta["ps-cursor"]


# gRPC: the line controller


async def _run_controller(server: PlantServer, counts: Counts, stopping: asyncio.Event) -> None:
    """Watch the presses, and publish the state of the line in small batches."""
    pieces = 0
    async with (
        penstock.connect(server.grpc_address, client_id="line-controller") as client,
        client.subscribe("plant/+/vibration") as vibrations,
        asyncio.TaskGroup() as tasks,
    ):
        watching = tasks.create_task(_read_all(vibrations))
        is_over = False
        while not is_over:
            pieces += 3
            state = [
                Outgoing(topic="plant/line-1/state", payload="running"),
                Outgoing(topic="plant/line-1/pieces", payload=str(pieces)),
            ]
            counts.published["sidecar"] += (await client.publish_many(state)).accepted
            is_over = await _is_stopped(stopping, STATE_EVERY_S)
        watching.cancel()


async def _read_all(messages: Subscription) -> None:
    async for _ in messages:
        pass


# WebSocket: the maintenance page, with the JSON that a browser would send


async def _run_page(server: PlantServer, counts: Counts, stopping: asyncio.Event) -> None:
    """Watch the ovens, and publish a note when one of them is hot."""
    clock = asyncio.get_running_loop().time
    async with connect(server.websocket_address) as socket:
        await subscribe(socket, "plant/+/temperature")
        unacknowledged, next_at = 0, 0.0
        while unacknowledged or not stopping.is_set():
            frame = await _receive_frame(socket)
            if frame.get("type") == "ack":
                counts.published["web"] += 1
                unacknowledged -= 1
            elif _is_hot(frame) and not stopping.is_set() and clock() >= next_at:
                next_at = clock() + NOTE_EVERY_S
                unacknowledged += 1
                await socket.send(json.encode(_note(frame)).decode())


async def subscribe(socket: ClientConnection, filter: str, after: str | None = None) -> None:
    """Subscribe over a new WebSocket, and wait for the acknowledgement.

    Raises:
        PlantError: the server refuses.
    """
    await socket.recv()  # the greeting
    request = {"type": "subscribe", "filter": filter, **({} if after is None else {"after": after})}
    await socket.send(json.encode(request).decode())
    response = json.decode(await socket.recv())
    if response["type"] != "ack":
        raise PlantError(f"the server refused the subscription to {filter}: {response}")


async def _receive_frame(socket: ClientConnection) -> dict[str, Any]:
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


# HTTP: work orders in a stream, for which workers compete


async def _send_orders(server: PlantServer, counts: Counts, stopping: asyncio.Event) -> None:
    """Send one order after the other until the plant stops."""
    while not stopping.is_set():
        order = {"order": counts.published["streams"] + 1, "task": "replace seal", "machine": "pump-3"}
        await asyncio.to_thread(_send_order, server.http_address, order)
        counts.published["streams"] += 1
        await asyncio.sleep(ORDER_EVERY_S)


async def _receive_orders(server: PlantServer, worker: str, counts: Counts, stopping: asyncio.Event) -> None:
    """Receive orders as one of the workers, until the plant stops and none is left."""
    while True:
        has_stopped = stopping.is_set()
        if await asyncio.to_thread(_receive_order, server.http_address):
            counts.orders[worker] += 1
        elif has_stopped:
            return


def _send_order(address: str, order: dict[str, object]) -> None:
    body = {
        "streamId": ORDERS,
        "messageUuid": str(uuid4()),
        "message": order,
        "blockingSendTimeoutSeconds": LONG_POLL_S,
    }
    with urlopen(Request(f"{address}/api/v1/streams/send", json.encode(body)), timeout=HTTP_TIMEOUT_S):  # noqa: S310 - http only
        pass


def _receive_order(address: str) -> bool:
    """Wait for one order; False if there was none in time."""
    query = urlencode({"streamId": ORDERS, "timeoutSeconds": LONG_POLL_S})
    try:
        with urlopen(f"{address}/api/v1/streams/receive?{query}", timeout=HTTP_TIMEOUT_S) as response:  # noqa: S310 - http only
            return bool(json.decode(response.read()))
    except HTTPError as error:
        with error:
            if error.code == HTTPStatus.FAILED_DEPENDENCY:
                return False
            raise
