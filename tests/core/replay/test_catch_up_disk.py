"""Joins on the real log, on a real loop, while somebody publishes without a pause."""

import asyncio
from pathlib import Path

import pytest

from penstock.common.statement import Statement
from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival, Broker
from penstock.core.replay.catch_up import After, Last, Start
from penstock.core.runtime.clock import SystemClock
from penstock.core.settings import CoreSettings, LogSettings, RingSettings
from penstock.core.subscriptions.subscription import Options
from penstock.model import Door, Policy
from tests.contract.storages import open_disk
from tests.support.connection import MemoryConnection
from tests.support.encodings import PlainEncoding, as_plain
from tests.support.samples import make_run

PAST = 5_000
MOST = 200_000
"""If nothing were ever caught up with, publishing ends here."""


@pytest.mark.parametrize("start", ["oldest", "last"])
async def test_a_past_on_disk_is_caught_up_with_while_messages_come_in(start: str, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    settings = CoreSettings(ring=RingSettings(messages=10), log=LogSettings(capture=("#",)))
    async with open_disk(tmp_path) as storage:
        broker = Broker(settings, OpenAccess(), storage.log, storage.state, SystemClock(), loop)
        oldest = broker.history.cursor()
        sender, _ = broker.connect(Arrival(Identity(None, "s"), Door.MQTT), MemoryConnection(), as_plain)
        connection, done = MemoryConnection(), loop.create_future()
        reader, _ = broker.connect(Arrival(Identity(None, "r"), Door.WEB), connection, as_plain)
        broker.resume(reader)
        count = 0

        async def publish(messages: int) -> None:
            nonlocal count
            for _ in range(messages):
                broker.publish(make_run("a", b"%06d" % count), sender)
                count += 1
            await asyncio.sleep(0)

        for _ in range(PAST // 100):
            await publish(100)

        def complete(statement: Statement) -> None:
            done.set_result((statement, len(connection.deliveries)))

        begin: Start = After(oldest) if start == "oldest" else Last(PAST - 500)
        broker.catch_up(
            reader,
            "a",
            Options(),
            PlainEncoding(),
            policy=Policy.DISCONNECT,
            start=begin,
            on_complete=complete,
            on_failed=done.set_exception,
        )
        while not done.done() and count < MOST:
            await publish(3)
        statement, place = await done
        await publish(3)
        broker.deliver_now()
        got = [int(delivered.payload) for delivered in connection.deliveries]
        first = 0 if start == "oldest" else 500
        assert got == list(range(first, count))
        assert (statement.served, statement.is_complete) == (place, True)
        broker.close()
