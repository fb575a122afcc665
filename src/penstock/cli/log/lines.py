"""One message as one line: for people, or as a JSON object with a key for each column."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from penstock.cli.output import Output
from penstock.cli.text import one_line, plain
from penstock.cli.units import moment_text

if TYPE_CHECKING:
    import pyarrow as pa

Lines = Callable[["pa.RecordBatch"], Iterator[bytes]]

_encode = msgspec.json.Encoder().encode


def lines_for(output: Output) -> Lines:
    """How messages are written."""
    return as_json if output is Output.JSON else as_text


def as_json(batch: "pa.RecordBatch") -> Iterator[bytes]:
    """Everything that is known of each message."""
    for row in batch.to_pylist():
        yield _encode({name: plain(value) for name, value in row.items()}) + b"\n"


def as_text(batch: "pa.RecordBatch") -> Iterator[bytes]:
    """Offset, time, topic, sequence and payload of each message; whatever they hold, it is one line."""
    columns = batch.select(["offset", "published_at", "topic", "sequence", "payload"]).to_pylist()
    for row in columns:
        when = moment_text(row["published_at"])
        topic, payload = one_line(row["topic"].encode()), one_line(row["payload"])
        yield f"{row['offset']} {when} {topic} {row['sequence']} {payload}\n".encode()
