"""What the server says of itself under `$SYS/broker/`."""

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.diagnostics.counters import Counters
from penstock.core.diagnostics.sys_topics import PREFIX, SysTopics
from penstock.core.settings import CoreSettings, LogSettings, RetainedSettings
from penstock.model import Door
from tests.support.broker import Stage
from tests.support.disk import Disk

NAMES = (
    "version",
    "uptime",
    "clients/connected",
    "clients/total",
    "clients/disconnected",
    "messages/received",
    "messages/sent",
    "messages/publish/received",
    "messages/publish/sent",
    "bytes/received",
    "bytes/sent",
    "subscriptions/count",
    "retained/count",
    "errors/protocol",
    "errors/auth",
    "errors/authz",
    "errors/packet",
)


class Told:
    """A broker that reports, and who reads it."""

    def __init__(self, settings: CoreSettings | None = None, disk: Disk | None = None) -> None:
        self.stage = Stage(settings, disk=disk)
        self.counters = self.stage.broker.counters
        self.reporting = SysTopics(self.stage.broker, self.stage.clock, "1.2.3")

    def read(self) -> dict[str, str]:
        """Publish, and answer every value that is retained then."""
        self.reporting.publish()
        self.stage.settle()
        found = self.stage.broker.retained.match(PREFIX + "#")
        return {
            topic.name.removeprefix(PREFIX): topic.retained.payload().decode()
            for topic in found
            if topic is not None and topic.retained is not None
        }


@pytest.fixture
def told() -> Told:
    return Told()


def test_every_name_has_a_value_and_there_is_no_other(told: Told) -> None:
    assert sorted(told.read()) == sorted(NAMES)


def test_a_log_that_outlives_the_server_tells_how_it_is() -> None:
    disk = Disk()
    told = Told(CoreSettings(log=LogSettings(capture=("#",))), disk)
    told.stage.client("s").publish("a", b"1", b"2", qos=1)
    told.stage.settle()
    values = told.read()
    assert (values["log/state"], values["log/first_offset"]) == ("ok", "1")
    assert int(values["log/last_offset"]) >= 2
    disk.is_full = True
    told.stage.client("s").publish("a", b"3", qos=1)
    told.stage.settle()
    assert told.read()["log/state"] == "failing: the disk is full"


def test_an_idle_server_counts_nothing_not_even_its_own_values(told: Told) -> None:
    for _ in range(2):
        values = told.read()
        assert values.pop("version") == "1.2.3"
        assert set(values.values()) == {"0"}


def test_uptime_is_in_whole_seconds(told: Told) -> None:
    told.stage.clock.advance(125.9)
    assert told.read()["uptime"] == "125"


def test_a_subscriber_gets_the_last_values_at_once_and_the_next_ones_as_they_come(told: Told) -> None:
    told.read()
    client = told.stage.client("reader")
    client.subscribe("$SYS/#")
    told.stage.settle()
    assert sorted(delivered.topic for delivered in client.take()) == sorted(PREFIX + name for name in NAMES)
    for seconds in (10, 20):
        told.stage.clock.advance(10)
        told.read()
        fresh = {delivered.topic: delivered.payload for delivered in client.take()}
        assert len(fresh) == len(NAMES)
        assert fresh[PREFIX + "uptime"] == b"%d" % seconds


def test_who_subscribes_to_everything_is_spared(told: Told) -> None:
    client = told.stage.client("reader")
    client.subscribe("#")
    told.read()
    assert client.take() == []


def test_retained_values_of_clients_are_counted(told: Told) -> None:
    client = told.stage.client("c")
    for topic in ("a", "b", "b/c"):
        client.publish(topic, b"x", retain=True)
    assert told.read()["retained/count"] == "3"
    assert told.read()["retained/count"] == "3"


def test_clients_are_connected_or_known_or_both(told: Told) -> None:
    for name in "abc":
        told.stage.client(name, expiry=60)
    told.counters.connections, told.counters.disconnections = 9, 7
    values = told.read()
    shown = {name: values[f"clients/{name}"] for name in ("connected", "total", "disconnected")}
    assert shown == {"connected": "2", "total": "3", "disconnected": "1"}


@pytest.mark.parametrize(
    ("name", "counted", "expected"),
    [
        (
            "messages/received",
            {"control_packets_received": 1, "published_at": {Door.WEB: 2}, "publishes_refused": 1},
            4,
        ),
        ("messages/sent", {"delivered_at": {Door.MQTT: 3, Door.SERVER: 1}, "control_packets_sent": 3}, 7),
        (
            "messages/publish/received",
            {"published_at": {Door.MQTT: 1, Door.STREAMS: 3}, "publishes_refused": 1},
            5,
        ),
        (
            "messages/publish/sent",
            {"delivered_at": {Door.MQTT: 3, Door.SERVER: 1}, "control_packets_sent": 3},
            4,
        ),
        ("bytes/received", {"bytes_received": 4}, 4),
        ("bytes/sent", {"bytes_sent": 4}, 4),
        ("subscriptions/count", {"subscriptions_added": 9, "subscriptions_removed": 2}, 7),
        ("errors/protocol", {"wire_errors": 5, "malformed_packets": 3}, 2),
        ("errors/packet", {"wire_errors": 5, "malformed_packets": 3}, 3),
        ("errors/auth", {"authentications_failed": 4}, 4),
        ("errors/authz", {"actions_forbidden": 4}, 4),
    ],
)
def test_totals_are_told_under_their_names(
    told: Told, name: str, counted: dict[str, int | dict[Door, int]], expected: int
) -> None:
    for counter, value in counted.items():
        if isinstance(value, dict):
            getattr(told.counters, counter).update(value)
        else:
            setattr(told.counters, counter, value)
    assert told.read()[name] == str(expected)


@pytest.mark.parametrize(
    ("limits", "missing"),
    [
        (TopicLimits(max_bytes=len(PREFIX + "messages/publish/sent")), {"messages/publish/received"}),
        (TopicLimits(max_levels=4), {"messages/publish/received", "messages/publish/sent"}),
        (TopicLimits(max_topics=len(NAMES) - 1), {"errors/packet"}),
    ],
)
def test_a_value_that_the_limits_leave_no_room_for_is_left_out(
    limits: TopicLimits, missing: set[str]
) -> None:
    assert set(NAMES) - Told(CoreSettings(topic=limits)).read().keys() == missing


def test_values_published_before_any_client_comes_keep_their_room() -> None:
    full = Told(CoreSettings(retained=RetainedSettings(max_messages=len(NAMES))))
    full.read()
    full.stage.client("c").publish("a", b"x", retain=True)
    full.stage.clock.advance(10)
    assert full.read()["uptime"] == "10"


def test_every_counter_starts_at_nothing() -> None:
    assert set(Counters().snapshot().values()) == {0}
