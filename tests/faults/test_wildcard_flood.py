"""Filters by the thousand and topics as deep as they can be: matching stays quick, or the answer is no."""

from uuid import uuid4

import pytest

from penstock.wire.mqtt import Publish, ReasonCode, Version
from tests.doors.mqtt.peers import Peers, both_versions, payloads
from tests.faults.watching import Costs, Witness
from tests.support.servers import RunningServer, StartServer

FILTERS_AT_ONCE = 100
MESSAGES = 1_000
QUOTA = 150


def filters_of(count: int) -> list[str]:
    """Wildcards at every place; each topic `t/n/x` is meant by a few of them."""
    shapes = ("+/{}/#", "t/{}/+", "+/+/x{}", "t/+/x{}/#", "+/{}/x{}", "#")
    return [shapes[number % 5].format(number // 5, number // 5) for number in range(count)]


@both_versions
async def test_thousands_of_wildcards_hold_nobody_up(
    start_server: StartServer, peers: Peers, scale: int, version: Version
) -> None:
    """Twenty thousand in a soak, by clients of which each has as many as it may."""
    server, most = start_server(), 2_000
    async with Witness(server):
        clients = [await peers.connect("", version, port=server.port) for _ in range(scale)]
        for number, client in enumerate(clients):
            filters = [f"+/c{number}/{filter}" for filter in filters_of(most)]
            for start in range(0, most, FILTERS_AT_ONCE):
                granted = await client.subscribe(*filters[start : start + FILTERS_AT_ONCE])
                assert set(granted) == {0}
        publisher = await peers.connect(port=server.port)
        for number in range(MESSAGES):
            topic = f"a/c{number % scale}/t/{number % 300}/x{number % 300}"
            publisher.stream.write(Publish(topic, b"%d" % number))
        await publisher.fence()
        for number, client in enumerate(clients):
            wanted = [b"%d" % message for message in range(MESSAGES) if message % scale == number]
            assert payloads(await client.fence()) == wanted


async def test_filters_beyond_the_quota_are_refused_by_its_name(
    start_server: StartServer, peers: Peers
) -> None:
    server = start_server({"sessions": {"max_subscriptions": QUOTA}})
    client = await peers.connect(port=server.port)
    costs = Costs(server)
    for start in range(0, 1_000, FILTERS_AT_ONCE):
        granted = await client.subscribe(*(f"+/{start + each}/#" for each in range(FILTERS_AT_ONCE)))
        room = max(min(QUOTA - start, FILTERS_AT_ONCE), 0)
        assert granted == (0,) * room + (ReasonCode.QUOTA_EXCEEDED,) * (FILTERS_AT_ONCE - room)
    await costs.are_back()


@both_versions
@pytest.mark.parametrize("levels", [129, 1_000, 2_040])
async def test_topics_deeper_than_allowed_are_refused(
    server: RunningServer, peers: Peers, version: Version, levels: int
) -> None:
    client = await peers.connect("", version, port=server.port)
    own = uuid4().hex
    deep = own + "/a" * (levels - 1)
    is_new = version is Version.V5
    no = ReasonCode.TOPIC_FILTER_INVALID if is_new else 0x80
    assert await client.subscribe(deep, "+/" * (levels - 1) + "#", f"{own}/#") == (no, no, 0)
    assert await client.publish(deep, b"deep") == (ReasonCode.TOPIC_NAME_INVALID if is_new else 0)
    assert await client.fence() == []


@both_versions
async def test_topics_as_deep_as_mqtt_can_name_are_matched_where_they_are_allowed(
    start_server: StartServer, peers: Peers, version: Version
) -> None:
    """Nothing on their way is recursive: 30,000 levels are more than any stack has."""
    limits = {"max_bytes": 65_535, "max_levels": 65_535}
    server = start_server({"topic": limits})
    async with Witness(server):
        publisher = await peers.connect("", version, port=server.port)
        subscriber = await peers.connect("", version, port=server.port)
        deep, wide = "a" + "/a" * 30_000, "+/" * 30_000 + "#"
        assert await subscriber.subscribe(wide) == (0,)
        assert await publisher.publish(deep, b"deep", retain=True) == 0
        assert payloads(await subscriber.fence()) == [b"deep"]
        assert await subscriber.subscribe("a/+/#") == (0,)
        assert (await subscriber.receive(Publish)).retain
        assert await publisher.publish(deep, b"", retain=True) == 0
        assert payloads(await subscriber.fence()) == [b""]
        assert len(await subscriber.unsubscribe(wide, "a/+/#")) == (2 if version is Version.V5 else 0)
