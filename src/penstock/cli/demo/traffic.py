"""The plant at work: programs at all four doors for a few seconds, and what is counted meanwhile."""

import asyncio
from typing import Any

import penstock
from penstock.cli.demo.orders import WORKERS, receive_orders, send_orders
from penstock.cli.demo.page import watch_ovens
from penstock.cli.demo.plant import FILTER, MACHINES, Machine
from penstock.cli.demo.screen import Moving, Screen
from penstock.cli.demo.server import DemoServer
from penstock.cli.demo.tally import DOORS, Tally
from penstock.client import MqttClient, Outgoing, PacketProperties, Subscription

READING_EVERY_S = 0.05
STATE_EVERY_S = 0.25
LOOK_EVERY_S = 0.25
HISTORIAN_READS = 300
"""How much the historian reads before its machine is switched off."""
LEAST_MESSAGES = 4 * HISTORIAN_READS
"""On a slow machine the plant works until there is so much to read."""
COLUMNS = ("door and who is there", "published", "delivered")


async def work(server: DemoServer, seconds: float, screen: Screen) -> Tally:
    """Let the plant work for so long, or a little longer, and tell what its programs have counted."""
    tally, stopping, is_there = Tally(), asyncio.Event(), asyncio.Event()
    with screen.moving() as moving:
        async with asyncio.TaskGroup() as tasks:
            historian = tasks.create_task(_keep_history(server, tally, is_there))
            await is_there.wait()  # it is to see everything
            for machine in MACHINES:
                tasks.create_task(_measure(server, machine, tally, stopping))
            tasks.create_task(_control(server, tally, stopping))
            tasks.create_task(watch_ovens(server, tally, stopping))
            tasks.create_task(send_orders(server, tally, stopping))
            for worker in WORKERS:
                tasks.create_task(receive_orders(server, worker, tally, stopping))
            await _look(server, seconds, tally, historian, moving)
            stopping.set()
    return tally


async def _look(
    server: DemoServer, seconds: float, tally: Tally, historian: "asyncio.Task[None]", moving: Moving
) -> None:
    """Show what the server counts, until the time is over and there is enough."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while clock() < deadline or not historian.done() or tally.published.total() < LEAST_MESSAGES:
        counted = await asyncio.to_thread(count_at_doors, server)
        moving.update(COLUMNS, door_rows(counted))
        await asyncio.sleep(LOOK_EVERY_S)


def count_at_doors(server: DemoServer) -> dict[str, dict[str, int]]:
    """What the server has taken and given at each door."""
    with server.client() as client:
        return dict(client.metrics(limit=0)["doors"])


def door_rows(counted: dict[str, dict[str, int]]) -> list[tuple[Any, ...]]:
    """The same as rows of a table."""
    rows: list[tuple[Any, ...]] = [
        (who, counted[door]["published"], counted[door]["delivered"]) for door, who in DOORS.items()
    ]
    return [*rows, ("all", *(sum(row[column] for row in rows) for column in (1, 2)))]


async def _measure(server: DemoServer, machine: Machine, tally: Tally, stopping: asyncio.Event) -> None:
    """The sensors of one machine, over MQTT at QoS 1."""
    async with MqttClient.connect(port=server.mqtt_port, client_id=machine.name) as client:
        for readings in machine.readings():
            for topic, payload in readings:
                await client.publish(topic, payload, qos=1)
                tally.published["mqtt"] += 1
            if await _is_over(stopping, READING_EVERY_S):
                return


async def _control(server: DemoServer, tally: Tally, stopping: asyncio.Event) -> None:
    """The line controller, over gRPC: it watches the presses, and publishes a few messages at a time."""
    pieces = 0
    async with (
        penstock.connect(server.grpc_address, client_id="line-controller") as client,
        client.subscribe("plant/+/vibration") as vibrations,
        asyncio.TaskGroup() as tasks,
    ):
        watching = tasks.create_task(_watch(vibrations))
        is_over = False
        while not is_over:
            pieces += 3
            state = [
                Outgoing(topic="plant/line-1/state", payload="running"),
                Outgoing(topic="plant/line-1/pieces", payload=str(pieces)),
            ]
            tally.published["sidecar"] += (await client.publish_many(state)).accepted
            is_over = await _is_over(stopping, STATE_EVERY_S)
        watching.cancel()


async def _watch(messages: Subscription) -> None:
    async for _ in messages:
        pass


async def _keep_history(server: DemoServer, tally: Tally, is_there: asyncio.Event) -> None:
    """The historian: everything over MQTT at QoS 1, with its place in the log, until it is switched off."""
    marks = PacketProperties(user=(("penstock-meta", "1"),))
    async with MqttClient.connect(port=server.mqtt_port, client_id="historian") as client:
        await client.subscribe(FILTER, qos=1, properties=marks)
        is_there.set()
        while len(tally.historian) < HISTORIAN_READS:
            message = await client.messages.receive()
            said = dict(message.properties.user)
            tally.historian.append((message.topic, int(said["ps-seq"])))
            tally.cursor = said["ps-cursor"]


async def _is_over(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait a moment; True if the plant has stopped meanwhile."""
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return False
    return True
