"""Replay of a log that is being written: reaches the head without gaps or duplicates."""

import asyncio
from pathlib import Path

import pytest

from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival, Broker
from penstock.core.ports.connection import Encoding
from penstock.core.runtime.clock import SystemClock
from penstock.core.settings import CoreSettings, LogSettings
from penstock.core.subscriptions.subscription import Options
from penstock.model import Door, Policy
from penstock.storage.disk.log import DiskLog
from tests.support.connection import MemoryConnection
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_run, payloads_of

LEAST_AT_START, LEAST_LIVE = 1_000, 300


@pytest.mark.parametrize("limit_bytes", [1 << 14, 1 << 20])
async def test_a_reader_joins_the_audience_under_load_without_hole_and_double(
    tmp_path: Path, limit_bytes: int
) -> None:
    loop, clock = asyncio.get_running_loop(), SystemClock()
    log = DiskLog(tmp_path / "data", loop, clock)
    settings = CoreSettings(log=LogSettings(capture=("#",)))
    broker = Broker(settings, OpenAccess(), log, log.state, clock, loop)
    sink = MemoryConnection(lambda size: None)
    sender, _ = broker.connect(
        Arrival(Identity(None, "s"), Door.MQTT), MemoryConnection(lambda size: None), _same
    )
    reader, _ = broker.connect(Arrival(Identity(None, "r"), Door.MQTT), sink, _same)
    broker.resume(reader)
    sent, goal = 0, LEAST_AT_START

    async def publish() -> None:
        nonlocal sent
        while sent < goal:
            for _ in range(10):
                sent += 1
                broker.publish(make_run(f"a/{sent % 7}", b"%06d" % sent, qos=1), sender)
            await asyncio.sleep(0.0005)  # a reader has to be faster than the writer, or it never arrives

    try:
        await publish()
        goal = 1 << 30
        publishing = asyncio.create_task(publish())
        replay = broker.history.replay(["a/#"], broker.history.cursor(0))
        served: list[bytes] = []
        is_at_head = False
        while not is_at_head:
            chunk = await replay.read(limit_bytes)
            assert chunk.statement.is_complete
            served += [payload for run in chunk.runs for payload in payloads_of(run)]
            is_at_head = chunk.statement.is_at_head
        broker.subscribe(reader, "a/#", Options(), PlainEncoding(qos=0), policy=Policy.DROP_NEWEST)
        goal = sent + LEAST_LIVE
        await publishing
        broker.flush()
        assert served + sink.take_payloads() == [b"%06d" % number for number in range(1, sent + 1)]
    finally:
        log.close()


def _same(form: Encoding) -> Encoding:
    return form
