"""Damage to files, seeded so that a failure can be repeated."""

from collections.abc import Callable
from pathlib import Path
from random import Random


def flip_bit(path: Path, random: Random) -> None:
    """Turn one bit over."""
    data = bytearray(path.read_bytes())
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data)


def overwrite(path: Path, random: Random) -> None:
    """Put noise in the place of some bytes."""
    data = bytearray(path.read_bytes())
    if data:
        start = random.randrange(len(data))
        stop = min(len(data), start + random.randrange(1, 600))
        data[start:stop] = random.randbytes(stop - start)
        path.write_bytes(data)


def clear(path: Path, random: Random) -> None:
    """Put zeros in the place of a page, as a power cut does."""
    data = bytearray(path.read_bytes())
    if data:
        start = random.randrange(len(data)) // 4096 * 4096
        stop = min(len(data), start + 4096)
        data[start:stop] = bytes(stop - start)
        path.write_bytes(data)


def cut(path: Path, random: Random) -> None:
    """Remove the end."""
    data = path.read_bytes()
    path.write_bytes(data[: random.randrange(len(data) + 1)])


def append(path: Path, random: Random) -> None:
    """Add noise or zeros behind the end."""
    noise = random.choice((random.randbytes, bytes))(random.randrange(1, 5_000))
    path.write_bytes(path.read_bytes() + noise)


def remove(path: Path, random: Random) -> None:
    """Remove all of it."""
    path.unlink()


Damage = Callable[[Path, Random], None]

DAMAGES: tuple[Damage, ...] = (flip_bit, overwrite, clear, cut, append, remove)


def table_of(folder: Path, family: str) -> Path:
    """The largest table of a family."""
    name = b"name" + family.encode()  # of a table's properties
    return max(
        (path for path in folder.rglob("*.sst") if name in path.read_bytes()),
        key=lambda path: path.stat().st_size,
    )


def flip_byte(path: Path, place: int) -> None:
    """Turn the bits of one byte over."""
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
