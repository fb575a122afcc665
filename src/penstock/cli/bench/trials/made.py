"""Logs made for a trial: as a server would have written them, and much faster."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from msgspec import Struct

from penstock.model import Door, Run, bare_shape
from penstock.storage.disk.columns import encode_batch, summarize, to_batch
from penstock.storage.disk.frames import Frame, encode_extents, encode_frame, encode_summary
from penstock.storage.disk.layout import (
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
from penstock.storage.disk.mark import Mark
from penstock.storage.disk.opening import open_store
from penstock.storage.disk.store import Changes

BATCH_MESSAGES = 10_000
FRAME_MESSAGES = 500
"""What a busy server commits at once."""
TOPIC_COUNT = 100
PAYLOAD_BYTES = 100
EPOCH = 1
BEGAN_AT = 1_700_000_000_000_000
"""When the first message was published, in microseconds; the others follow step by step."""
NODE_ID = "bench"


class Plant(Struct, frozen=True):
    """Who publishes: so many gauges, each to a topic of its own, one after the other in steps of time."""

    topics: int = TOPIC_COUNT
    step_us: int = 1


def make_log(path: Path, sealed: int, rows: int, plant: Plant | None = None) -> None:
    """Write a data directory with one message after another: so many sealed, then so many in frames."""
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
        mark = Mark.open(path)
        mark.epoch = EPOCH
        mark.write(last, commit)
        mark.close()
    finally:
        store.close()


def _frames(plant: Plant, first: int, last: int, size: int) -> Iterator[Frame]:
    """Frames of up to `size` messages. Half of each payload is random, so that it cannot be squeezed away."""
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
    """What the sealer would write for a frame that makes a batch."""
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
