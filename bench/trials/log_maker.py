"""Log maker: writes a data directory as a server would, and much faster."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from msgspec import Struct

from penstock.model import Door
from penstock.runs import Run, bare_shape
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.pieces.arrow_columns import encode_batch, summarize, to_batch
from penstock.storage.disk.pieces.frames import Frame, encode_extents, encode_frame, encode_summary
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.rocksdb.layout import (
    COMMIT_KEY,
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    STATE,
    TOPICS,
    offset_key,
    pack_place,
    sequence_key,
)
from penstock.storage.disk.rocksdb.store import Changes

BATCH_MESSAGES = 10_000
FRAME_MESSAGES = 500
"""Messages that a busy server commits at once."""
TOPIC_COUNT = 100
PAYLOAD_BYTES = 100
EPOCH = 1
BEGAN_AT = 1_700_000_000_000_000
"""Time of the first message in microseconds; the others follow in steps."""
NODE_ID = "bench"


class Plant(Struct, frozen=True):
    """Publishers of the log: one gauge per topic, in turn, in steps of time."""

    topics: int = TOPIC_COUNT
    step_us: int = 1


def make_log(path: Path, sealed: int, rows: int, plant: Plant | None = None) -> None:
    """Write a data directory with this many sealed messages, then this many in frames."""
    plant = plant or Plant()
    store, _ = open_store(path)
    last = commit = 0
    try:
        for frame in _frames(plant, 1, sealed, BATCH_MESSAGES):
            store.write(_seal(frame), sync=False)
            last = frame.last
        for frame in _frames(plant, sealed + 1, sealed + rows, FRAME_MESSAGES):
            commit += 1
            changes = Changes()
            changes.put(ROWS, offset_key(frame.first), encode_frame(frame))
            changes.put(STATE, COMMIT_KEY, offset_key(commit))
            store.write(changes, sync=False)
            last = frame.last
        store.write(Changes(), sync=True)
        mark = DurableMark.open(path)
        mark.epoch = EPOCH
        mark.write(last, commit)
        mark.close()
    finally:
        store.close()


def _frames(plant: Plant, first: int, last: int, size: int) -> Iterator[Frame]:
    """Frames of up to `size` messages. Half of each payload is random, so it does not compress."""
    random = Random(first)
    shape = bare_shape(Door.MQTT, 1, retain=False)
    text = b'{"unit": "bar", "state": "open", "place": "weir"}'.ljust(PAYLOAD_BYTES // 2)
    for start in range(first, last + 1, size):
        offsets = range(start, min(start + size, last + 1))
        noise = random.randbytes(len(offsets) * PAYLOAD_BYTES // 2)
        runs = [
            Run(
                topic=f"plant/{(offset - 1) % plant.topics:03d}/pressure",
                slab=text + noise[place : place + PAYLOAD_BYTES // 2],
                head=0,
                stride=PAYLOAD_BYTES,
                count=1,
                shape=shape,
                client_id=f"gauge-{(offset - 1) % plant.topics}",
                sequence=(offset - 1) // plant.topics + 1,
                offset=offset,
                published_at=BEGAN_AT + offset * plant.step_us,
            )
            for offset, place in zip(offsets, range(0, len(noise), PAYLOAD_BYTES // 2), strict=True)
        ]
        yield Frame(EPOCH, offsets[0], offsets[-1], BEGAN_AT + offsets[-1] * plant.step_us, runs)


def _seal(frame: Frame) -> Changes:
    """Write what the sealer would write for a frame that fills a batch."""
    batch = to_batch([frame], NODE_ID)
    stream = encode_batch(batch)
    summary, extents = summarize([frame], batch, len(stream))
    changes, key = Changes(), offset_key(frame.first)
    changes.put(LOG, key, stream)
    changes.put(INDEX, key, encode_summary(summary))
    changes.put(TOPICS, key, encode_extents(extents))
    for topic, extent in extents.items():
        changes.put(SEQUENCES, sequence_key(topic, extent.first), pack_place(frame.first, extent.last))
    return changes
