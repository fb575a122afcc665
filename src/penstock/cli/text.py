"""What others wrote, such as payloads and names, as text that is safe to show, or as a value of JSON."""

from base64 import b64encode
from typing import Any

_LINE_ENDS = str.maketrans({"\n": r"\n", "\t": r"\t"})


def printable(data: bytes) -> bytes:
    """Text in which nothing can give orders to a terminal."""
    text = data.decode("utf-8", "backslashreplace")
    safe = (each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
    return "".join(safe).encode()


def one_line(data: bytes) -> str:
    """Text without anything that could end a line, or give orders to a terminal."""
    return printable(data).decode().translate(_LINE_ENDS)


def plain(value: Any) -> Any:
    """Bytes as text, or in base64 where they are not."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$bytes": b64encode(value).decode()}
