"""The names of topics that are sealed in the log, in their order, a page at a time; from any thread.

They stand in the keys of their sequences, which outlive the messages. A topic may have a key in each of very
many batches, so that most of them are passed over.
"""

from penstock.storage.disk.layout import SEQUENCES, last_sequence_key, topic_of, unpack_place
from penstock.storage.disk.store import DamagedData, Store

KEYS_LOOKED_AT = 8
"""Of one topic, before the rest of them is passed over."""

Names = list[tuple[str, int]]
"""Topics, each with its last sequence."""


def topics_after(store: Store, name: str, limit: int) -> Names:
    """The first topics after a name that were ever sealed; what cannot be read is left out."""
    found: Names = []
    place: bytes | None = _behind(name)
    while place is not None and len(found) < limit:
        try:
            place = _add(store, found, place, limit)
        except DamagedData as error:
            place = store.readable_after(SEQUENCES, error.key)
    return found


def _add(store: Store, found: Names, place: bytes, limit: int) -> bytes | None:
    """Add what stands behind a place; answer where to go on, None if that is not needed."""
    keys = 0
    for key, value in store.scan(SEQUENCES, place):
        topic, last = topic_of(key), unpack_place(value)[1]
        if found and found[-1][0] == topic:
            found[-1] = (topic, last)
        elif len(found) == limit:
            return None
        else:
            found.append((topic, last))
            keys = 0
        keys += 1
        if keys == KEYS_LOOKED_AT:
            newest = store.last_before(SEQUENCES, last_sequence_key(topic))
            found[-1] = (topic, last if newest is None else unpack_place(newest[1])[1])
            return _behind(topic)
    return None


def _behind(topic: str) -> bytes:
    """Where the keys of the next topic begin."""
    return topic.encode() + b"\x01" if topic else b""
