"""A writer and a reader of any log, as a broker is."""

import time
from collections import Counter
from collections.abc import Iterable

from penstock.core.ports.log import Log, Wanted
from penstock.runs import Run
from tests.contract.storages import Storage
from tests.support.samples import make_run, payloads_of

Message = tuple[int, bytes]
"""Offset and payload."""


class Writer:
    """Appends runs as a broker does: offsets rise, with gaps where a message was not kept."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.log = storage.log
        self.written: list[Message] = []
        self._sequences: Counter[str] = Counter()

    def append(self, *payloads: bytes, gap: int = 0, topic: str = "a", qos: int = 0) -> Run:
        sequencer = self.log.sequencer
        offset, sequence = sequencer.head + 1 + gap, self._sequences[topic] + 1
        run = make_run(topic, *payloads, qos=qos, sequence=sequence, offset=offset)
        run.published_at = time.time_ns() // 1_000
        sequencer.turn.runs.append(run)
        sequencer.head = run.last_offset
        self.written += messages_of([run])
        self._sequences[topic] += len(payloads)
        return run

    async def commit(self) -> None:
        """Wait until everything that was appended is committed."""
        await self.storage.commit()


def messages_of(runs: Iterable[Run], after: int = 0) -> list[Message]:
    """Single messages; of a run that began before `after` only what comes behind it."""
    return [
        (run.offset + index, payload)
        for run in runs
        for index, payload in enumerate(payloads_of(run))
        if run.offset + index > after
    ]


async def read_all(log: Log, after: int, limit_bytes: int, wanted: Wanted | None = None) -> list[Message]:
    """Everything after an offset, read chunk by chunk."""
    found: list[Message] = []
    while after < log.last_offset:
        span = await log.read(after, limit_bytes, wanted)
        assert span.until > after, "a reader gets on with every chunk"
        assert span.gaps == ()
        found += messages_of(span.runs, after)
        after = span.until
    return found
