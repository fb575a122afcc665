"""The figures of streams."""

from penstock.core.settings import CoreSettings, StreamSettings
from tests.core.streams.streaming import Crowd
from tests.telemetry.scenes import Scene


async def test_it_is_told_who_waited_for_whom_and_in_vain() -> None:
    scene = Scene(CoreSettings(streams=StreamSettings(default_size=1)))
    crowd = Crowd(scene)
    crowd.receive(wait=1.0)
    crowd.send()  # is awaited
    crowd.send()
    crowd.receive(is_gone=True)
    crowd.receive()
    crowd.send()
    crowd.send()  # in place of the one before
    crowd.send(wait=0.5)  # in vain
    crowd.receive("t", wait=0.5)  # in vain
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


async def test_the_times_of_waits_are_told() -> None:
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
