"""Retained values by the thousand: each costs little, and who subscribes gets all of them."""

from penstock.wire.mqtt import Publish, Version, encode_packet
from tests.doors.mqtt.peers import Peers, both_versions
from tests.faults.watching import Costs, Witness
from tests.support.servers import StartServer

AT_ONCE = 500
BODY = b"0123456789"


@both_versions
async def test_every_retained_value_is_kept_and_comes_to_new_subscribers(
    start_server: StartServer, peers: Peers, scale: int, version: Version
) -> None:
    """Fifty thousand in a soak, where it can be told what each one costs."""
    server, count = start_server({"ring": {"messages": 0}}), 5_000 * scale
    topics = [f"site/{number % 100}/device/{number % 7}/{number}" for number in range(count)]
    async with Witness(server):
        publisher = await peers.connect("", version, port=server.port)
        await publisher.publish("site/0", BODY, retain=True)
        costs = Costs(server)
        for start in range(0, count, AT_ONCE):
            packets = (Publish(topic, BODY, retain=True) for topic in topics[start : start + AT_ONCE])
            await publisher.send_bytes(b"".join(encode_packet(packet, version) for packet in packets))
        await publisher.fence()
        if scale > 1:
            assert costs.more_bytes / count < 600
        subscriber = await peers.connect("", version, port=server.port)
        await subscriber.subscribe("site/+/device/#")
        got = [await subscriber.receive(Publish) for _ in range(count)]
        assert {message.topic for message in got} == set(topics)
        assert all(message.retain and message.payload == BODY for message in got)
        await subscriber.unsubscribe("site/+/device/#")
        await subscriber.subscribe("site/7/device/+/+")
        assert len(await subscriber.fence()) == count // 100
        assert await subscriber.fence() == []
