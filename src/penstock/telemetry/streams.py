"""What streams have to tell: who waits for whom, for how long, and in vain."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from penstock.core.broker import Broker
from penstock.telemetry.families import counter, counters, gauge, gauges, histogram, of_one


def stream_families(broker: Broker) -> Iterator[Metric]:
    """Everything that is known of streams."""
    streams = broker.streams
    seen, buffers = streams.counters, streams.buffers
    yield gauge("penstock_streams", "Streams that are known.", len(streams))
    yield gauge("penstock_stream_messages", "Messages that streams keep.", buffers.messages)
    yield gauge("penstock_stream_bytes", "Memory that messages in streams take.", buffers.bytes)
    yield gauges(
        "penstock_stream_waiting",
        "Sends and receives that wait.",
        ["side"],
        of_one({"send": seen.senders_waiting, "receive": seen.receivers_waiting}),
    )
    yield counter("penstock_stream_sends", "Sends that were accepted.", seen.sends)
    yield counters(
        "penstock_stream_matches",
        "Messages that were received, by who was there first.",
        ["first"],
        of_one({"message": seen.met_message, "receiver": seen.met_receiver}),
    )
    yield counters(
        "penstock_stream_timeouts",
        "Sends and receives that waited in vain.",
        ["side"],
        of_one({"send": seen.send_timeouts, "receive": seen.receive_timeouts}),
    )
    yield counter(
        "penstock_stream_given_back",
        "Messages that went back to the front because their receiver had gone.",
        seen.given_back,
    )
    yield counter(
        "penstock_stream_dropped", "Messages that made room for newer ones in their stream.", buffers.dropped
    )
    yield histogram(
        "penstock_stream_send_wait_seconds",
        "How long sends waited until they were accepted.",
        seen.send_waits,
    )
    yield histogram(
        "penstock_stream_receive_wait_seconds",
        "How long receivers waited for their message.",
        seen.receive_waits,
    )
