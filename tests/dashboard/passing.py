"""Messages that pass by somebody who is away, and so are recorded as not delivered."""

import asyncio

from penstock.client import HttpClient, MqttClient, PacketProperties

AWAY = "away"


def let_pass_by(mqtt_port: int, client: HttpClient) -> None:
    """Publish five messages to `dock/in` and one to `dock/out` at QoS 0, which do not wait for anybody."""
    asyncio.run(_come_and_go(mqtt_port))
    for number in range(5):
        client.publish("dock/in", number, qos=0)
    client.publish("dock/out", 1, qos=0)


async def _come_and_go(port: int) -> None:
    stays = PacketProperties(session_expiry=600)
    async with MqttClient.connect(port=port, client_id=AWAY, clean_start=False, properties=stays) as away:
        await away.subscribe("dock/#", qos=1)
