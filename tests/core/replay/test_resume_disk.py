"""Streams that go on after a restart, with the log on disk and on a real loop."""

import asyncio
from pathlib import Path

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Served, Statement
from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival, Broker
from penstock.core.durability.records import PausedRecord
from penstock.core.replay.catch_up import AfterSequences, Foresight
from penstock.core.runtime.clock import SystemClock
from penstock.core.settings import CoreSettings, LogSettings, RingSettings
from penstock.core.subscriptions.subscription import Options
from penstock.model import Door, Policy
from tests.contract.storages import Storage, open_disk
from tests.support.connection import MemoryConnection
from tests.support.encodings import PlainEncoding, as_plain
from tests.support.samples import make_run

SETTINGS = CoreSettings(ring=RingSettings(messages=10), log=LogSettings(capture=("#",)))


def serve(storage: Storage) -> Broker:
    loop = asyncio.get_running_loop()
    return Broker(SETTINGS, OpenAccess(), storage.log, storage.state, SystemClock(), loop)


async def publish(broker: Broker, topic: str, first: int, last: int) -> None:
    """Publish numbers, and wait until they are safe."""
    sender, _ = broker.connect(Arrival(Identity(None, "s"), Door.MQTT), MemoryConnection(), as_plain)
    safe = asyncio.get_running_loop().create_future()
    ticket = None
    for number in range(first, last + 1):
        ticket = broker.publish(make_run(topic, b"%05d" % number, qos=1), sender).ticket
    broker.when_committed(ticket, safe.set_result)
    assert await safe is None


async def resume(broker: Broker, record: PausedRecord, sequences: dict[str, int]) -> tuple[object, ...]:
    """What a client is told, and gets, that comes back with sequences."""
    connection, done = MemoryConnection(), asyncio.get_running_loop().create_future()
    session, _ = broker.connect(Arrival(Identity(None, "sub"), Door.SIDECAR), connection, as_plain)
    broker.resume(session)
    foresights: list[Foresight | None] = []
    place = Cursor((Position(broker.log.log_id, record.epoch, record.position),))

    def complete(statement: Statement) -> None:
        done.set_result(statement)

    broker.catch_up(
        session,
        record.filters,
        Options(),
        PlainEncoding(),
        policy=Policy.DROP_OLDEST,
        start=AfterSequences(sequences, record.epoch, place),
        on_begin=foresights.append,
        on_complete=complete,
        on_failed=done.set_exception,
    )
    statement = await done
    return foresights, [int(each.payload) for each in connection.deliveries], statement


async def test_a_stream_that_a_restart_cut_goes_on_after_its_sequences(tmp_path: Path) -> None:
    async with open_disk(tmp_path) as storage:
        broker = serve(storage)
        await publish(broker, "a", 1, 500)
        await publish(broker, "b", 501, 600)
        record = PausedRecord(None, "c", ("a", "b"), 300.0, 0, broker.log.epoch)
        broker.paused.begin("sub", record)
        stored = asyncio.get_running_loop().create_future()
        broker.paused.when_stored(stored.set_result)
        assert await stored is None
        broker.close()
    async with open_disk(tmp_path) as storage:
        broker = serve(storage)
        found = broker.paused.take("sub", None)
        assert found is not None
        await publish(broker, "a", 601, 650)
        foresights, got, statement = await resume(broker, found, {"a": 200, "b": 90})
        assert foresights == [Foresight(0, False)]
        assert got == [*range(201, 501), *range(591, 651)]
        assert isinstance(statement, Statement) and statement.is_complete
        assert statement.topics == (Served("a", 350, 550), Served("b", 10, 100))
        broker.close()
