"""JSON lines, cut into the values that they hold: one on each line, blank lines between them do not count.

What a value means, and whether it is JSON at all, is for whoever reads it. A line ends with a line feed, and
a carriage return before it belongs to the blanks around the value; the last line need not end.
"""

from collections.abc import Iterator
from io import BytesIO

MEDIA_TYPE = "application/x-ndjson"


def lines_of(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Each value as it stands there, and the number of its line, from 1."""
    for number, line in enumerate(BytesIO(body), 1):  # which shares the body's bytes
        value = line.strip()
        if value:
            yield number, value
