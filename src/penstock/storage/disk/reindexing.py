"""Sealed batches that the index does not know any more, found again by what they hold.

A block of the index has room for many batches, so its damage would hide far more than it destroys. A batch
tells everything of itself but where its holes are, and whether offsets behind its last message belong to it:
these count as missing.
"""

from penstock.storage.disk.failures import DamagedData
from penstock.storage.disk.frames import Summary
from penstock.storage.disk.layout import LOG, offset_key, offset_of
from penstock.storage.disk.store import Store


def find_batches(store: Store, first: int, last: int) -> list[Summary]:
    """What can be said of the batches that begin between two offsets."""
    found: list[Summary] = []

    def go_on(_error: DamagedData, _place: bytes | None) -> None:
        """What cannot be read stays missing."""

    for key, value in store.scan_around(LOG, offset_key(first), offset_key(last + 1), on_damage=go_on):
        summary = _summarize(offset_of(key), value)
        if summary is not None:
            found.append(summary)
    return found


def _summarize(first: int, data: bytes) -> Summary | None:
    from penstock.storage.disk.columns import (  # noqa: PLC0415 - a healthy start has no use for it
        count_reserved,
        decode_batch,
    )

    try:
        batch = decode_batch(data, ["offset", "topic", "epoch", "published_at"])
    except ValueError:
        return None
    offsets, epochs, times = (batch.column(name) for name in ("offset", "epoch", "published_at"))
    return Summary(
        first,
        offsets[-1].as_py(),
        batch.num_rows,
        len(data),
        times[0].value,
        times[-1].value,
        epochs[0].as_py(),
        epochs[-1].as_py(),
        reserved=count_reserved(batch),
    )
