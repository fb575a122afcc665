"""Pages of a topic's history, cut where they must end: between messages, and in the middle of a run."""

import pytest

from penstock.core.replay.statement import Chunk
from penstock.doors.web.reading.history_page import HistoryReader
from tests.support.broker import Stage

TOPIC = "a"


async def reading_of(stage: Stage) -> tuple[HistoryReader, Chunk]:
    """A reader, and everything there is of the topic: two runs of three messages, with others before each."""
    sender = stage.client("sender")
    for payloads in ((b"1", b"2", b"3"), (b"4", b"5", b"6")):
        sender.publish("other", b"x")
        sender.publish(TOPIC, *payloads)
    stage.settle()
    return HistoryReader(stage.broker, stage.clock, TOPIC), await stage.broker.history.since_sequence(
        TOPIC, 0
    )


def sequences(chunk: Chunk) -> list[int]:
    return [run.sequence + index for run in chunk.runs for index in range(run.count)]


def next_offset(chunk: Chunk) -> int:
    return chunk.statement.next.positions[0].offset


@pytest.mark.parametrize("limit", range(1, 6))
async def test_a_page_is_cut_anywhere_and_goes_on_there(limit: int) -> None:
    stage = Stage()
    reading, whole = await reading_of(stage)
    page = reading.cut(whole, limit)
    assert sequences(page) == list(range(1, limit + 1))
    assert (page.statement.served, page.statement.is_at_head) == (limit, False)
    rest = await stage.broker.history.replay((TOPIC,), page.statement.next).read(1 << 20)
    assert sequences(rest) == list(range(limit + 1, 7))


@pytest.mark.parametrize("limit", [6, 7])
async def test_a_page_that_fits_is_left_as_it_is(limit: int) -> None:
    reading, whole = await reading_of(Stage())
    assert reading.cut(whole, limit) is whole


async def test_a_page_is_cut_after_an_offset() -> None:
    reading, whole = await reading_of(Stage())
    offsets = [run.offset + index for run in whole.runs for index in range(run.count)]
    for count, offset in enumerate(offsets[:-1], start=1):
        page = reading.cut_after(whole, offset)
        assert sequences(page) == list(range(1, count + 1))
        assert offset <= next_offset(page) < offsets[count]
        assert page.statement.served == count
    assert reading.cut_after(whole, offsets[-1]) is whole
    assert sequences(reading.cut_after(whole, 0)) == []
