"""State between two batches, and the step from one to the next: a new state, and rows of the tables.

Pure functions: no disk, no Spark, and the same input gives the same output.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from penstock.spark.jobs.insights import rows
from penstock.spark.jobs.insights.rows import TABLES, finish_table
from penstock.spark.jobs.insights.sums import TOTALS, Addable, Amounts, Sums, sums_of_cells
from penstock.spark.jobs.insights.windows import (
    CELLS,
    GRAINS,
    TEN_SECONDS,
    Grain,
    closed_windows,
    open_windows,
    settled_until,
    widen,
)

LONGER = GRAINS[1:]

_TOPIC = {"window": pa.int64(), "topic": pa.string()}
_ENTRIES = pa.schema({**_TOPIC, "bucket": pa.int32(), "count": pa.int64()}).empty_table()
_TOTALS = pa.schema({**_TOPIC, **dict.fromkeys(TOTALS, pa.int64())}).empty_table()
NO_TOPICS = Sums(("window", "topic"), _TOTALS, _ENTRIES, _ENTRIES)
NO_SEQUENCES = pa.schema({"topic": pa.string(), "last_sequence": pa.int64()}).empty_table()

T = TypeVar("T", bound=Addable)


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of the aggregation."""

    lateness_s: float = 10.0
    prefix_levels: int = 1
    hot_topics: int = 20
    buckets: int = 8


class State(Struct, frozen=True, kw_only=True):
    """State after a batch."""

    settled_us: int | None = None
    """Watermark: windows that end at or before it are closed."""
    messages: int = 0
    late: int = 0
    """Number of messages that arrived after their window was closed, and were left out."""
    cells: pa.Table = CELLS.empty_table()
    """Of open windows of ten seconds."""
    topics: tuple[Sums, ...] = (NO_TOPICS, NO_TOPICS)
    """Of longer open windows, by grain; as are the next two."""
    clients: tuple[Amounts, ...] = (rows.NO_CLIENTS, rows.NO_CLIENTS)
    drops: tuple[Amounts, ...] = (rows.NO_DROPS, rows.NO_DROPS)
    sequences: pa.Table = NO_SEQUENCES
    """Last sequence of each topic in closed windows."""


class BatchResult(Struct, frozen=True):
    """Outcome of one batch."""

    state: State
    tables: Mapping[str, pa.Table]
    """New rows by table."""
    messages: int
    late: int


def process_batch(state: State, cells: pa.Table, settings: Settings) -> BatchResult:
    """Add the cells of a batch to a state; closed windows become rows."""
    if not cells.num_rows:
        return BatchResult(state, {}, 0, 0)
    starts = pc.min_max(cells.column("window")).as_py()
    settled_us = starts["min"] if state.settled_us is None else state.settled_us
    late = pc.sum(closed_windows(cells, TEN_SECONDS, settled_us).column("messages")).as_py() or 0
    messages = pc.sum(cells.column("messages")).as_py()
    until_us = settled_until(starts["max"], round(settings.lateness_s * 1_000_000), settled_us)
    there = pa.concat_tables([state.cells, open_windows(cells, TEN_SECONDS, settled_us)])
    counted = replace(
        state,
        settled_us=until_us,
        messages=state.messages + messages,
        late=state.late + late,
        cells=open_windows(there, TEN_SECONDS, until_us),
    )
    if until_us == settled_us:
        return BatchResult(counted, {}, messages, late)
    settled, tables = _settle(counted, closed_windows(there, TEN_SECONDS, until_us), until_us, settings)
    return BatchResult(settled, tables, messages, late)


def _settle(
    state: State, cells: pa.Table, until_us: int, settings: Settings
) -> tuple[State, dict[str, pa.Table]]:
    """Make rows of closed windows of all grains."""
    is_news = pc.is_valid(cells.column("news"))
    messages, news = cells.filter(pc.invert(is_news)), cells.filter(is_news)
    new = rows.with_sequences_before(sums_of_cells(messages, ("window", "topic")), state.sequences)
    topics, open_topics = _by_grain(new, state.topics, until_us)
    clients, open_clients = _by_grain(rows.client_sums(messages), state.clients, until_us)
    drops, open_drops = _by_grain(rows.drop_sums(news), state.drops, until_us)
    settled = replace(
        state,
        topics=open_topics,
        clients=open_clients,
        drops=open_drops,
        sequences=rows.sequences_after(new, state.sequences),
    )
    found = [
        _tables(grain, by_topic, by_client, by_reason, settings)
        for grain, by_topic, by_client, by_reason in zip(GRAINS, topics, clients, drops, strict=True)
    ]
    return settled, {name: pa.concat_tables([tables[name] for tables in found]) for name in TABLES}


def _by_grain(new: T, waiting: Sequence[T], until_us: int) -> tuple[list[T], tuple[T, ...]]:
    """Closed windows of each grain, and open windows of the longer ones."""
    done, left = [new], []
    for grain, before_it in zip(LONGER, waiting, strict=True):
        there = before_it.plus(done[-1].each(partial(widen, grain=grain)))
        done.append(there.each(partial(closed_windows, grain=grain, until_us=until_us)))
        left.append(there.each(partial(open_windows, grain=grain, until_us=until_us)))
    return done, tuple(left)


def _tables(
    grain: Grain, topics: Sums, clients: Amounts, drops: Amounts, settings: Settings
) -> dict[str, pa.Table]:
    """The rows of one grain."""
    by_topic = rows.topic_rows(topics)
    found = {
        "topics": by_topic,
        "prefixes": rows.prefix_rows(topics, by_topic, settings.prefix_levels),
        "hot": rows.hot_rows(by_topic, settings.hot_topics),
        "clients": rows.rank_rows(clients.table, "client_id"),
        "drops": drops.table,
        "balance": rows.balance_rows(by_topic, settings.buckets),
    }
    return {name: finish_table(name, grain, table) for name, table in found.items()}
