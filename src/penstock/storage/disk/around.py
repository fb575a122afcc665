"""Finding the way around a damaged place.

RocksDB says that a block cannot be read, not which keys are in it. Later blocks can be read if one starts
there, so the place where that begins is searched for: with doubled steps, then by halving.
"""

from collections.abc import Callable

CanSeek = Callable[[bytes], bool]
"""Whether a scan can start at a key."""


def next_readable(can_seek: CanSeek, key: bytes) -> bytes | None:
    """A key after this one from which reading works again; None if it never does."""
    width = len(key) + 8  # so that steps are small compared to what two keys differ by
    origin = int.from_bytes(key.ljust(width, b"\0"), "big")

    def place(step: int) -> bytes:
        return (origin + step).to_bytes(width, "big")

    high = 1
    while not can_seek(place(high)):
        high *= 2
        if (origin + high) >> 8 * width:
            return None
    low = high // 2  # nothing can be read there
    while high - low > 1:
        middle = (low + high) // 2
        if can_seek(place(middle)):
            high = middle
        else:
            low = middle
    return place(high)
