"""What is known between two batches, and what a batch makes of it: the next state, and rows of the tables.

Nothing here touches a disk or Spark. The same state and the same cells always give the same.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from penstock.pipeline.jobs.insights import rows
from penstock.pipeline.jobs.insights.grains import GRAINS, TEN_SECONDS, Grain, after, before, widened
from penstock.pipeline.jobs.insights.sums import TOTALS, Addable, Amounts, Sums, sums_of_cells
from penstock.pipeline.jobs.insights.tables import TABLES, finished
from penstock.pipeline.jobs.insights.windows import CELLS, settled_until

LONGER = GRAINS[1:]

_TOPIC = {"window": pa.int64(), "topic": pa.string()}
_ENTRIES = pa.schema({**_TOPIC, "bucket": pa.int32(), "count": pa.int64()}).empty_table()
_TOTALS = pa.schema({**_TOPIC, **dict.fromkeys(TOTALS, pa.int64())}).empty_table()
NO_TOPICS = Sums(("window", "topic"), _TOTALS, _ENTRIES, _ENTRIES)
NO_SEQUENCES = pa.schema({"topic": pa.string(), "last_sequence": pa.int64()}).empty_table()

T = TypeVar("T", bound=Addable)


class Settings(Struct, frozen=True, kw_only=True):
    """How insights are made."""

    lateness_s: float = 10.0
    prefix_levels: int = 1
    hot_topics: int = 20
    buckets: int = 8


class State(Struct, frozen=True, kw_only=True):
    """What is known after a batch."""

    settled_us: int | None = None
    """Windows that end here or before are over."""
    messages: int = 0
    late: int = 0
    """How many of the messages came when their window was over, and were left out."""
    cells: pa.Table = CELLS.empty_table()
    """Of windows of ten seconds that are not over."""
    topics: tuple[Sums, ...] = (NO_TOPICS, NO_TOPICS)
    """Of longer windows that are not over, by grain; the same for the next two."""
    clients: tuple[Amounts, ...] = (rows.NO_CLIENTS, rows.NO_CLIENTS)
    drops: tuple[Amounts, ...] = (rows.NO_DROPS, rows.NO_DROPS)
    sequences: pa.Table = NO_SEQUENCES
    """How far each topic has come in the windows that are over."""


class Step(Struct, frozen=True):
    """What a batch makes of a state."""

    state: State
    tables: Mapping[str, pa.Table]
    """New rows by table."""
    messages: int
    late: int


def take(state: State, cells: pa.Table, settings: Settings) -> Step:
    """Add cells to a state; windows that are over become rows."""
    if not cells.num_rows:
        return Step(state, {}, 0, 0)
    starts = pc.min_max(cells.column("window")).as_py()
    settled_us = starts["min"] if state.settled_us is None else state.settled_us
    late = pc.sum(before(cells, TEN_SECONDS, settled_us).column("messages")).as_py() or 0
    messages = pc.sum(cells.column("messages")).as_py()
    until_us = settled_until(starts["max"], round(settings.lateness_s * 1_000_000), settled_us)
    there = pa.concat_tables([state.cells, after(cells, TEN_SECONDS, settled_us)])
    counted = replace(
        state,
        settled_us=until_us,
        messages=state.messages + messages,
        late=state.late + late,
        cells=after(there, TEN_SECONDS, until_us),
    )
    if until_us == settled_us:
        return Step(counted, {}, messages, late)
    settled, tables = _settle(counted, before(there, TEN_SECONDS, until_us), until_us, settings)
    return Step(settled, tables, messages, late)


def _settle(
    state: State, cells: pa.Table, until_us: int, settings: Settings
) -> tuple[State, dict[str, pa.Table]]:
    """Make rows of cells whose windows are over, and of longer windows that are over with them."""
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
    """What is over of each grain, and what of the longer ones is not."""
    done, left = [new], []
    for grain, before_it in zip(LONGER, waiting, strict=True):
        there = before_it.plus(done[-1].each(partial(widened, grain=grain)))
        done.append(there.each(partial(before, grain=grain, until_us=until_us)))
        left.append(there.each(partial(after, grain=grain, until_us=until_us)))
    return done, tuple(left)


def _tables(
    grain: Grain, topics: Sums, clients: Amounts, drops: Amounts, settings: Settings
) -> dict[str, pa.Table]:
    """The rows of one grain."""
    by_topic = rows.topic_rows(topics)
    found = {
        "topics": by_topic,
        "prefixes": rows.prefix_rows(topics, by_topic, settings.prefix_levels),
        "hot": rows.hottest(by_topic, settings.hot_topics),
        "clients": rows.ranked(clients.table, "client_id"),
        "drops": drops.table,
        "balance": rows.balance_rows(by_topic, settings.buckets),
    }
    return {name: finished(name, grain, table) for name, table in found.items()}
