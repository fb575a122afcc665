"""A subscriber that does not read: what it loses, and how to ask why."""

from typing import Any

from msgspec import Struct

from penstock.cli.demo.plant import MACHINES
from penstock.cli.demo.screen import Screen
from penstock.cli.demo.server import OUTBOX_MESSAGES, DemoServer
from penstock.client import MqttClient, NoAnswer, PacketProperties

TABLET = "tablet"
TOPIC = "plant/press-2/force"
BURST = 400
AT_ONCE = 20
"""How many unacknowledged messages the tablet takes."""


class Losses(Struct):
    """What became of the burst."""

    published: int
    delivered: int
    rows: list[dict[str, Any]]
    """What the server says was not delivered."""
    verdict: str

    @property
    def dropped(self) -> int:
        """How many messages the rows are of."""
        return sum(row["count"] for row in self.rows)


async def lose(server: DemoServer) -> Losses:
    """Let a tablet subscribe and not read, publish more than may wait for it, and ask why."""
    slow = PacketProperties(receive_maximum=AT_ONCE)
    tablet = MqttClient.connect(
        port=server.mqtt_port, client_id=TABLET, properties=slow, messages_limit=AT_ONCE
    )
    async with tablet as client:
        await client.subscribe(TOPIC, qos=1)
        await _publish(server)
        newest = server.count(TOPIC)
        with server.client() as http:
            said = http.why(TOPIC, newest, TABLET)
        delivered = 0
        while delivered + sum(row["count"] for row in said["rows"]) < BURST:
            try:
                await client.messages.receive(timeout=5)
            except (NoAnswer, TimeoutError):
                break
            delivered += 1
    return Losses(BURST, delivered, said["rows"], said["text"])


async def _publish(server: DemoServer) -> None:
    press = next(machine for machine in MACHINES if machine.name == "press-2")
    async with MqttClient.connect(port=server.mqtt_port, client_id=press.name) as client:
        for _, readings in zip(range(BURST), press.readings(), strict=False):
            await client.publish(TOPIC, readings[0][1], qos=1)


async def tell(server: DemoServer, screen: Screen) -> Losses:
    """The chapter: a loss, and who can say why."""
    screen.say(
        f"A tablet subscribes to {TOPIC} and stops reading. The press publishes {BURST} readings at once. "
        f"At most {OUTBOX_MESSAGES} may wait for one subscriber here (outbox.messages)."
    )
    losses = await lose(server)
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
