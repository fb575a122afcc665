"""Names of sealed topics in order, page by page. Thread-safe.

Read from the sequence keys, which outlive the messages. A topic may have a key for each of very many batches,
so most of them are skipped.
"""

from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import SEQUENCES, last_sequence_key, topic_of, unpack_place
from penstock.storage.disk.rocksdb.store import Store

KEYS_LOOKED_AT = 8
"""Keys of one topic that are read before the rest is skipped."""

Names = list[tuple[str, int]]
"""Topics, each with its last sequence."""


def topics_after(store: Store, name: str, limit: int) -> Names:
    """The first sealed topics after a name; unreadable ones are omitted."""
    found: Names = []
    place: bytes | None = _behind(name)
    while place is not None and len(found) < limit:
        try:
            place = _add(store, found, place, limit)
        except DamagedData as error:
            place = store.readable_after(SEQUENCES, error.key)
    return found


def _add(store: Store, found: Names, place: bytes, limit: int) -> bytes | None:
    """Add topics from a key on; return where to continue, None at the end."""
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
    """Lower bound for the keys of the next topic."""
    return topic.encode() + b"\x01" if topic else b""
