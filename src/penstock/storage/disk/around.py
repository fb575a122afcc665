"""Finding the way around a damaged place.

RocksDB says that a block cannot be read, not which keys are in it. Later blocks can be read if one starts
there, so the place where that begins is searched for: with doubled steps, then by halving.
"""

from collections.abc import Callable

CanSeek = Callable[[bytes], bool]
"""Whether a scan can start at a key."""

_STEP_BYTES, _MOST_BYTES = 8, 1024
"""By how much keys are made longer, at a time and in all, to find where exactly it begins."""


def next_readable(can_seek: CanSeek, key: bytes) -> bytes | None:
    """The first key after this one from which reading works again; None if it never does."""
    width = len(key) + _STEP_BYTES
    low = int.from_bytes(key.ljust(width, b"\0"), "big")

    def is_readable(number: int) -> bool:
        return can_seek(number.to_bytes(width, "big"))

    step = 1
    while not is_readable(low + step):
        step *= 2
        if (low + step) >> 8 * width:
            return None
    high = _halve(is_readable, low + step // 2, low + step)
    while width < len(key) + _MOST_BYTES:  # with longer keys, until that finds nothing before it any more
        width += _STEP_BYTES
        low, limit = high - 1 << 8 * _STEP_BYTES, high << 8 * _STEP_BYTES
        high = low if is_readable(low) else _halve(is_readable, low, limit)
        if high in {low, limit}:
            break
    return high.to_bytes(width, "big")


def _halve(is_readable: Callable[[int], bool], low: int, high: int) -> int:
    """The first place from which reading works, between one where it does not and one where it does."""
    while high - low > 1:
        middle = (low + high) // 2
        if is_readable(middle):
            high = middle
        else:
            low = middle
    return high
