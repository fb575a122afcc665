"""Exactly-once consumer: results and cursor change in one transaction, so that a crash can separate nothing.

A message in progress during a crash is redelivered. The sequence in its topic shows that it was counted, and
it is skipped.
"""

import asyncio
import sqlite3
import sys

import penstock

TABLES = """
create table if not exists totals (topic text primary key, sum real not null, sequence integer not null);
create table if not exists progress (id integer primary key check (id = 1), cursor text not null);
"""
ADD = """
insert into totals values (:topic, :value, :sequence)
on conflict (topic) do update set sum = sum + :value, sequence = :sequence where sequence < :sequence
"""
KEEP = "insert into progress values (1, :cursor) on conflict (id) do update set cursor = :cursor"


async def consume(address: str, file: str) -> None:
    """Add up the numbers that are published below `payments/`, forever."""
    database = sqlite3.connect(file)
    database.executescript(TABLES)
    known = database.execute("select cursor from progress").fetchone()
    async with (
        penstock.connect(address, client_id="totals") as client,
        client.subscribe("payments/#", after=known[0] if known else None) as messages,
    ):
        with database:  # also the first position, so that a crash before the first message skips none
            database.execute(KEEP, {"cursor": messages.cursor})
        print("counting", flush=True)
        async for message in messages:
            row = {"topic": message.topic, "value": float(message.text), "sequence": message.sequence}
            with database:
                database.execute(ADD, row)
                database.execute(KEEP, {"cursor": message.cursor})


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[2] if len(sys.argv) > 2 else "localhost:5672", sys.argv[1]))
