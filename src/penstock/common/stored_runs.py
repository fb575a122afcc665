"""Stored runs: the fields of runs as the log stores them, and as shards exchange them.

Both have the same fields in the same order. The log repeats the shape in every run; between shards, the runs
of a message share a table of shapes, and an expiry by the sender's clock is left out. There are functions and
no classes here, so that mypyc can compile the conversion together with `runs`.
"""

from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, Shape, bare_shape

ShapeRow = tuple[str, int, bool]
"""Door, QoS and retain flag."""
RunRow = tuple[str, bytes, int, int, int, int, Properties | None, float, int, str, int, int, int]
"""Topic, slab, head, stride, count, index of the shape, properties, ttl, packet id, client id, sequence,
offset and time of publishing."""
MAX_MESSAGES = 1_000_000
"""Of one run that is read."""


def fields_of(run: Run) -> tuple[object, ...]:
    """The fields that the log stores. A change is a change of its format."""
    shape = run.shape
    return (
        run.topic,
        run.slab,
        run.head,
        run.stride,
        run.count,
        (shape.layout, shape.door, shape.qos, shape.retain, shape.is_plain),
        run.properties,
        run.ttl,
        run.packet_id,
        run.client_id,
        run.sequence,
        run.offset,
        run.published_at,
        run.expires_at,
    )


def rows_of(runs: list[Run]) -> tuple[list[ShapeRow], list[RunRow]]:
    """Shapes and rows of runs for another shard."""
    shapes: dict[ShapeRow, int] = {}
    known: dict[Shape, int] = {}
    rows: list[RunRow] = []
    for run in runs:
        shape = run.shape
        index = known.get(shape)
        if index is None:
            index = shapes.setdefault((shape.door.value, shape.qos, shape.retain), len(shapes))
            known[shape] = index
        rows.append(
            (
                run.topic,
                run.slab,
                run.head,
                run.stride,
                run.count,
                index,
                run.properties,
                run.ttl,
                run.packet_id,
                run.client_id,
                run.sequence,
                run.offset,
                run.published_at,
            )
        )
    return list(shapes), rows


def runs_of(shapes: list[ShapeRow], rows: list[RunRow]) -> list[Run]:
    """Runs with bare payloads; they have no expiry before they are stamped. The types were checked.

    Raises:
        ValueError: a slab that is not as long as its messages, or a shape that there is not.
    """
    bare = [_BARE_SHAPES.get(shape) for shape in shapes]
    runs: list[Run] = []
    for topic, slab, head, stride, count, index, extra, ttl, packet_id, sender, sequence, offset, at in rows:
        shape = bare[index] if 0 <= index < len(bare) else None
        if shape is None:
            raise ValueError(f"a run of shape {index}, of {len(bare)}")
        if not (0 < count <= MAX_MESSAGES and 0 <= head <= stride and len(slab) == stride * count):
            raise ValueError(f"{count} messages of {stride} bytes in a slab of {len(slab)}")
        run = Run(
            topic, slab, head, stride, count, shape, extra, ttl, packet_id, sender, sequence, offset, at
        )
        runs.append(run)
    return runs


def expiry_of(run: Run) -> int | None:
    """Expiry of a stored run in microseconds of wall time; None if it never expires."""
    return None if run.ttl == NEVER else run.published_at + round(run.ttl * 1_000_000)


_BARE_SHAPES: dict[ShapeRow, Shape] = {  # by text: the hash of an enumeration's member is a call
    (door.value, qos, retain): bare_shape(door, qos, retain)
    for door in Door
    for qos in range(3)
    for retain in (False, True)
}
