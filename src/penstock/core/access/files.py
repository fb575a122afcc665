"""Line reader of the password file and the access list, with errors that name file and line."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from penstock.errors import InvalidConfig


class Line(Struct, frozen=True):
    """A line that says something, and where it stands."""

    file: Path
    number: int
    text: str

    def error(self, text: str) -> InvalidConfig:
        """A complaint about this line."""
        return InvalidConfig(f"{self.file}:{self.number}: {text}")


def read_lines(file: Path) -> Iterator[Line]:
    """The lines that are neither empty nor a comment."""
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:  # the latter for a name that no file can have
        raise InvalidConfig(f"{file}: cannot be read: {getattr(error, 'strerror', error)}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig(f"{file}:{number}: this is not UTF-8") from error
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip()
        if words and not words.startswith("#"):
            yield Line(file, number, words)
