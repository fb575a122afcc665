"""Slow subscriber: what it loses, and how to ask why."""

from typing import Any

from msgspec import Struct

from penstock.client import MqttClient, NoAnswer, PacketProperties

from .machines import MACHINES
from .screen import Screen
from .server import OUTBOX_MESSAGES, PlantServer

TABLET = "tablet"
TOPIC = "plant/press-2/force"
BURST = 400
WINDOW = 20
"""Unacknowledged messages that the tablet accepts."""


class Losses(Struct):
    """Outcome of the burst."""

    published: int
    delivered: int
    rows: list[dict[str, Any]]
    """The server's record of what was not delivered."""
    verdict: str

    @property
    def dropped(self) -> int:
        """Messages in these rows."""
        return sum(row["count"] for row in self.rows)


async def _lose(server: PlantServer) -> Losses:
    """Subscribe without reading, publish more than the queue holds, and ask why."""
    slow = PacketProperties(receive_maximum=WINDOW)
    tablet = MqttClient.connect(
        port=server.mqtt_port, client_id=TABLET, properties=slow, messages_limit=WINDOW
    )
    async with tablet as client:
        await client.subscribe(TOPIC, qos=1)
        await _publish(server)
        newest = server.count(TOPIC)
        with server.client() as http:
            why = http.why(TOPIC, newest, TABLET)
        delivered = 0
        while delivered + sum(row["count"] for row in why["rows"]) < BURST:
            try:
                await client.messages.receive(timeout=5)
            except (NoAnswer, TimeoutError):
                break
            delivered += 1
    return Losses(BURST, delivered, why["rows"], why["text"])


async def _publish(server: PlantServer) -> None:
    press = next(machine for machine in MACHINES if machine.name == "press-2")
    async with MqttClient.connect(port=server.mqtt_port, client_id=press.name) as client:
        for _, readings in zip(range(BURST), press.readings(), strict=False):
            await client.publish(TOPIC, readings[0][1], qos=1)


async def show_losses(server: PlantServer, screen: Screen) -> Losses:
    """Show the losses of a slow subscriber, and the reason."""
    screen.say(
        f"A tablet subscribes to {TOPIC} and stops reading. The press publishes {BURST} readings at once. "
        f"The queue of one subscriber holds {OUTBOX_MESSAGES} here (outbox.messages)."
    )
    losses = await _lose(server)
    rows = [
        (row["client_id"], f"{row['first']} to {row['last']}", row["count"], row["reason"], row["policy"])
        for row in losses.rows
    ]
    screen.table(("not delivered to", "sequences", "messages", "reason", "policy"), rows)
    screen.say("Why? Ask for one of them:")
    screen.show(
        f"penstock why {TOPIC} {losses.rows[0]['last']} --client {TABLET} --address {server.http_address}"
    )
    screen.say(losses.verdict)
    screen.check(
        losses.delivered + losses.dropped == losses.published,
        f"{losses.delivered} delivered + {losses.dropped} accounted for = {losses.published} published",
    )
    return losses
