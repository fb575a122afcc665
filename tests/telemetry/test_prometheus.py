"""Metrics in Prometheus' formats."""

import asyncio
import re
import shutil
from pathlib import Path
from subprocess import run

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from penstock.core.settings import CoreSettings, OutboxSettings, StreamSettings
from penstock.model import Policy
from penstock.telemetry.prometheus import render_openmetrics, render_text
from tests.core.streams.streaming import Crowd
from tests.telemetry.scenes import Scene, many, samples_of


async def test_streams_report_waits_and_timeouts() -> None:
    scene = Scene(CoreSettings(streams=StreamSettings(default_size=1)))
    crowd = Crowd(scene)
    crowd.receive(wait=1.0)
    crowd.send()  # is awaited
    crowd.send()
    crowd.receive(is_gone=True)
    crowd.receive()
    crowd.send()
    crowd.send()  # evicts the one before
    crowd.send(wait=0.5)  # times out
    crowd.receive("t", wait=0.5)  # times out
    scene.scheduler.advance(0.6)
    crowd.receive("t", wait=9.0)
    crowd.send(wait=9.0)
    samples = await scene.read()
    told = {
        (name.removeprefix("penstock_stream"), *(value for _, value in labels)): number
        for (name, labels), number in samples.items()
        if name.startswith("penstock_stream") and "_bucket" not in name
    }
    assert told == {
        ("s",): 2,
        ("_messages",): 1,
        ("_bytes",): crowd.streams.buffers.bytes,
        ("_waiting", "send"): 1,
        ("_waiting", "receive"): 1,
        ("_sends_total",): 4,
        ("_matches_total", "message"): 1,
        ("_matches_total", "receiver"): 1,
        ("_timeouts_total", "send"): 1,
        ("_timeouts_total", "receive"): 1,
        ("_given_back_total",): 1,
        ("_dropped_total",): 1,
        ("_send_wait_seconds_count",): 4,
        ("_send_wait_seconds_sum",): 0,
        ("_receive_wait_seconds_count",): 2,
        ("_receive_wait_seconds_sum",): 0,
    }


async def test_streams_report_wait_times() -> None:
    scene = Scene()
    crowd = Crowd(scene)
    crowd.receive(wait=5.0)
    scene.scheduler.advance(2.0)
    crowd.send(size=1)
    crowd.send()
    crowd.send(wait=5.0)
    scene.scheduler.advance(3.0)
    crowd.receive()
    samples = await scene.read()
    assert samples["penstock_stream_receive_wait_seconds_sum", ()] == 2.0
    assert samples["penstock_stream_send_wait_seconds_sum", ()] == 3.0


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

NEXUSD = """
nexusd_subscriber_queue_depth nexusd_messages_dropped_total nexusd_messages_expired_total
nexusd_publish_block_duration_seconds nexusd_subscriber_queue_high_watermark
messages_delivered_total messages_expired_total messages_dropped_total
nexusd_buffer_memory_bytes nexusd_buffer_evictions_total nexusd_buffer_topics_total nexusd_buffer_hit_rate
nexusd_subscriptions_total nexusd_subscription_shard_size nexusd_fanout_duration_seconds
nexusd_lock_wait_seconds nexusd_lock_acquisitions_total
nexusd_messages_published_total nexusd_messages_delivered_total nexusd_messages_forwarded_total
nexusd_message_size_bytes nexusd_message_latency_seconds nexusd_active_subscriptions nexusd_active_topics
nexusd_subscriber_queue_capacity nexusd_mesh_peers_connected nexusd_mesh_peers_total
nexusd_mesh_connection_duration_seconds nexusd_mesh_rpc_requests_total nexusd_mesh_rpc_duration_seconds
nexusd_mesh_bytes_sent_total nexusd_mesh_bytes_received_total nexusd_discovery_beacons_sent_total
nexusd_discovery_beacons_received_total nexusd_discovery_peers_discovered_total
nexusd_discovery_sync_operations_total nexusd_discovery_sync_duration_seconds nexusd_retained_messages
nexusd_retained_messages_bytes nexusd_process_cpu_seconds_total nexusd_process_resident_memory_bytes
nexusd_uptime_seconds nexusd_client_reconnections_total nexusd_client_gaps_detected_total
nexusd_client_messages_received_total nexusd_client_connection_state
"""
"""Every name that NexusD's documents have."""
MQTT = """
mqtt.connections.total mqtt.disconnections.total mqtt.messages.received.total mqtt.messages.sent.total
mqtt.bytes.received.total mqtt.bytes.sent.total mqtt.errors.total mqtt.connections.current
mqtt.subscriptions.active mqtt.retained.messages mqtt.sessions.active mqtt.message.size.bytes
mqtt.publish.duration.ms mqtt.delivery.duration.ms mqtt.session.takeover.duration.ms
mqtt.cluster.nodes.total mqtt.cluster.leader mqtt.etcd.storage.bytes mqtt.badger.storage.bytes
mqtt.retained.messages.total mqtt.wildcard.matches.duration.ms
"""
"""Every name that the Absmach MQTT broker has."""


def busy_scene(**metrics: object) -> Scene:
    """Broker in which everything has happened at least once."""
    scene = Scene(CoreSettings(outbox=OutboxSettings(messages=2)), **metrics)
    for name, policy in (("one", Policy.DROP_OLDEST), ("two", Policy.DROP_NEWEST), ("three", Policy.BLOCK)):
        reader = scene.client(name)
        reader.subscribe("a", policy=policy)
        reader.pause()
    scene.client("four").subscribe("#")
    scene.publish(*["a"] * 5, "b", 'odd "name"\\ü', "line\nbreak")
    scene.sender.publish("a", b"x", ttl=0.5)
    scene.advance(2.0)
    return scene


def families_of(text: str) -> set[str]:
    """Names as in the reference: as scraped, without the suffixes of histograms."""
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("others", [False, True])
async def test_both_formats_can_be_parsed_and_say_the_same(others: bool) -> None:
    scene = busy_scene(nexusd_names=others, mqtt_names=others)
    text = samples_of((await render_text(scene.metrics)).decode())
    opened = (await render_openmetrics(scene.metrics)).decode()
    assert opened.endswith("# EOF\n")
    families = read_openmetrics(opened)  # type: ignore[no-untyped-call]
    samples = [sample for family in families for sample in family.samples]
    told = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    assert set(told) == set(text)
    changing = ("process_cpu", "process_resident", "nexusd_process")
    assert {key: value for key, value in told.items() if not key[0].startswith(changing)} == {
        key: value for key, value in text.items() if not key[0].startswith(changing)
    }


@pytest.mark.system
@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
async def test_promtool_reports_nothing() -> None:
    checked = run(
        ["promtool", "check", "metrics"],
        input=await render_text(busy_scene().metrics),
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


async def test_numbers_are_those_of_the_broker() -> None:
    scene = busy_scene()
    told = await scene.read()
    broker = scene.broker
    assert told["penstock_messages_published_total", (("topic", "a"),)] == 6
    assert told["penstock_messages_delivered_total", (("topic", "a"),)] == 6
    doors = {
        labels: count for (name, labels), count in told.items() if name == "penstock_door_messages_total"
    }
    assert len(doors) == 8
    assert doors[("direction", "published"), ("door", "mqtt")] == scene.broker.counters.published
    assert doors[("direction", "delivered"), ("door", "mqtt")] == scene.broker.counters.delivered
    assert sum(doors.values()) == scene.broker.counters.published + scene.broker.counters.delivered
    oldest = (("policy", "drop-oldest"), ("reason", "outbox-full"), ("topic", "a"))
    newest = (("policy", "drop-newest"), ("reason", "outbox-full"), ("topic", "a"))
    assert told["penstock_messages_dropped_total", oldest] == 4
    assert told["penstock_messages_dropped_total", newest] == 4
    assert told["penstock_messages_expired_total", (("topic", "a"),)] == 2
    assert told["penstock_messages_not_delivered_total", (("reason", "expired"),)] == 2
    assert told["penstock_delivery_latency_seconds_count", ()] == broker.topic_stats.latency.count
    assert told["penstock_connections", (("door", "http"),)] == 2
    assert told["penstock_sessions", (("state", "connected"),)] == 5
    assert told["penstock_subscriptions", ()] == 4
    assert told["penstock_slow_subscribers", ()] == 3
    assert told["penstock_publishers_held", ()] == 1
    assert told["penstock_outbox_largest_messages", ()] == max(
        len(session.outbox or ()) for session in broker.sessions.values()
    )
    assert told["penstock_outbox_largest_ratio", ()] == max(
        session.outbox.saturation for session in broker.sessions.values() if session.outbox
    )
    assert told["penstock_http_requests_total", ()] == 7
    assert told["penstock_grpc_calls_total", (("status", "OK"),)] == 4
    assert told["penstock_paused_subscriptions", ()] == len(broker.paused) == 0
    assert told["penstock_http_responses_total", (("status", "4xx"),)] == 2
    assert told["penstock_build_info", (("node_id", ""), ("version", "1.2"))] == 1
    assert told["penstock_uptime_seconds", ()] == 2.0


async def test_times_are_counted_in_buckets() -> None:
    scene = Scene()
    scene.client("reader").subscribe("a")
    for seconds in (0.1, 0.1, 3.0):
        scene.sender.publish("a", b"x")
        scene.clock.advance(seconds)
        scene.settle()
    told, name = await scene.read(), "penstock_delivery_latency_seconds"
    buckets = [
        told[f"{name}_bucket", (("le", bound),)] for bound in ("0.0625", "0.125", "2.0", "4.0", "+Inf")
    ]
    assert buckets == [0, 2, 2, 3, 3]
    assert told[f"{name}_sum", ()] == pytest.approx(3.2)


async def test_a_metric_without_a_value_is_absent() -> None:
    scene = Scene()
    scene.metrics.lag, scene.metrics.doors = None, ()
    names = {name for name, _ in await scene.read()}
    absent = (
        "penstock_log_holds",
        "penstock_log_stored_bytes",
        "penstock_log_failing",
        "penstock_http_requests_total",
        "penstock_grpc_calls_total",
    )
    assert not names & {*absent, "penstock_event_loop_lag_seconds_count"}


async def test_names_of_other_systems_are_exported_only_if_enabled() -> None:
    names = {name.partition("_")[0] for name, _ in await busy_scene().read()}
    assert names == {"penstock", "process"}
    names = {name.partition("_")[0] for name, _ in await busy_scene(nexusd_names=True).read()}
    assert names == {"penstock", "process", "nexusd"}
    names = {name.partition("_")[0] for name, _ in await busy_scene(mqtt_names=True).read()}
    assert names == {"penstock", "process", "mqtt"}


async def test_names_of_other_systems_have_the_same_values() -> None:
    scene = busy_scene(nexusd_names=True, mqtt_names=True)
    told = await scene.read()
    topic = ("topic", "a")
    labels = (("policy", "drop-oldest"), ("reason", "outbox-full"), topic)
    assert told["nexusd_messages_dropped_total", labels] == 4
    assert told["nexusd_messages_delivered_total", (("delivery_type", "local"), topic)] == 6
    assert told["nexusd_message_latency_seconds_count", ()] == scene.broker.topic_stats.latency.count
    rings = [value for (name, _), value in told.items() if name == "nexusd_buffer_memory_bytes"]
    assert (len(rings), sum(rings)) == (16, told["penstock_ring_bytes", ()])
    assert told["mqtt_messages_sent_total", ()] == scene.broker.counters.delivered
    assert told["mqtt_connections_current", ()] == 5
    milliseconds = told["mqtt_delivery_duration_ms_bucket", (("le", "1000.0"),)]
    assert milliseconds == told["penstock_delivery_latency_seconds_bucket", (("le", "1.0"),)]


async def test_the_loop_turns_between_families_and_slices_of_topics() -> None:
    scene = Scene(topics=1_000)
    for name in many("t", 50_000):
        scene.broker.topics.make(name)
    turns = 0
    rendered = asyncio.ensure_future(render_text(scene.metrics))
    while not rendered.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 50 + len(families_of(rendered.result().decode()))


# The page


def names_on_the_page() -> set[str]:
    return set(re.findall(r"`([a-z][a-z0-9_.]+)`", PAGE.read_text(encoding="utf-8")))


async def test_the_reference_has_every_exported_name_and_no_other(tmp_path: Path) -> None:
    from penstock.app import Server  # noqa: PLC0415 - only this story needs a whole server
    from penstock.config import Settings  # noqa: PLC0415

    scene = busy_scene(nexusd_names=True, mqtt_names=True)
    told = families_of((await render_text(scene.metrics)).decode())
    server = Server(Settings(data_dir=str(tmp_path / "data")))
    try:
        archive, log = server._storage.archive, server.broker.log
        assert archive is not None
        scene.broker.log = log
        scene.metrics.archive = archive
        scene.metrics.stored_bytes = scene.metrics.queued_bytes = lambda: 1
        scene.metrics.password_checks, scene.metrics.stall = server._password_checks, server._stall
        told |= families_of((await render_text(scene.metrics)).decode())
    finally:
        server._storage.upkeep.close()
    ours = ("penstock_", "process_")
    rows = re.findall(
        r"^\| `((?:penstock|process|nexusd|mqtt)_\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    absent = {name for name in rows if not name.startswith(ours) and name not in told}
    assert {name for name in told if name not in rows} == set()
    assert {name for name in rows if name.startswith(ours)} == {
        name for name in told if name.startswith(ours)
    }
    assert absent <= {"nexusd_message_size_bytes", "nexusd_retained_messages_bytes", "nexusd_buffer_hit_rate"}


@pytest.mark.parametrize("name", [*NEXUSD.split(), *MQTT.split()])
async def test_every_name_of_other_systems_is_in_the_reference(name: str) -> None:
    assert name in names_on_the_page()
