"""Messages for an offline client, which are recorded as not delivered."""

import asyncio

from penstock.client import HttpClient, MqttClient, PacketProperties

AWAY = "away"


def publish_undelivered(mqtt_port: int, client: HttpClient) -> None:
    """Publish five messages to `dock/in` and one to `dock/out` at QoS 0, which are not queued offline."""
    asyncio.run(_subscribe_and_disconnect(mqtt_port))
    for number in range(5):
        client.publish("dock/in", number, qos=0)
    client.publish("dock/out", 1, qos=0)


async def _subscribe_and_disconnect(port: int) -> None:
    stays = PacketProperties(session_expiry=600)
    async with MqttClient.connect(port=port, client_id=AWAY, clean_start=False, properties=stays) as away:
        await away.subscribe("dock/#", qos=1)
