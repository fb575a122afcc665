"""Messages of the log as a table in Parquet: run it again, and it adds what is new, each message once.

The newest file carries the cursor up to which the table goes. A file appears complete or not at all, so
rows and cursor cannot disagree, whenever this program is killed. `penstock pipeline archive` does the same
for the whole log, with compaction and an audit.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.client import HttpClient

CURSOR = b"cursor"


def append_new(folder: Path, address: str) -> int:
    """Add a file with everything since the last one, and return its number of rows."""
    folder.mkdir(exist_ok=True)
    files = sorted(folder.glob("*.parquet"))
    after = pq.read_schema(files[-1]).metadata[CURSOR].decode() if files else None
    with HttpClient(address) as client, client.read_log(after=after, filters=["greenhouse/#"]) as read:
        messages = read.table()
        statement = read.statement
    if not messages.num_rows:
        return 0
    rows = [
        {"at": at, "sensor": topic.rpartition("/")[2], "sequence": sequence, **json.loads(payload)}
        for at, topic, sequence, payload in zip(
            *(messages[name].to_pylist() for name in ("published_at", "topic", "sequence", "payload")),
            strict=True,
        )
    ]
    table = pa.Table.from_pylist(rows).replace_schema_metadata({CURSOR: statement.next})
    draft = folder / "draft"
    pq.write_table(table, draft)
    draft.rename(folder / f"{messages['offset'][0].as_py():020}.parquet")
    if not statement.is_complete:
        print("some messages were gone before they were read:", statement, file=sys.stderr)
    return len(rows)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    added = append_new(folder, sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8080")
    table = pq.read_table(folder)
    print(f"{added} rows added, {table.num_rows} in all")
    if table.num_rows:
        print(
            table.group_by("sensor")
            .aggregate([("celsius", "mean"), ("celsius", "max")])
            .sort_by("sensor")
            .to_pylist()
        )
