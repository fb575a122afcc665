"""Windows: limits in bytes and messages, order, and batches that are not too large."""

import pytest

from penstock.cluster.window import BATCH_BYTES, BATCH_RUNS, RUN_BYTES, RouteQueue, Window, weight_of
from penstock.model import Properties
from tests.support.samples import make_run


def queue_of(limit_bytes: int = 10**9, limit_messages: int = 10**9) -> RouteQueue:
    return RouteQueue(Window(limit_bytes, limit_messages))


def test_messages_are_limited() -> None:
    window = Window(1_000, 3)
    assert [window.add(1, 1) for _ in range(4)] == [True, True, True, False]
    window.release(1, 1)
    assert window.add(1, 1)


def test_bytes_are_limited() -> None:
    window = Window(100, 1_000)
    assert window.add(60, 1) and window.add(40, 1) and not window.add(1, 1)
    assert (window.bytes, window.messages) == (100, 2)


def test_what_is_larger_than_the_window_passes_alone() -> None:
    window = Window(100, 10)
    assert window.add(500, 20)
    assert not window.add(1, 1)
    window.release(500, 20)
    assert window.add(1, 1) and not window.add(500, 1)


def test_room_is_reported_once_when_half_is_free() -> None:
    window = Window(1_000, 4)
    for _ in range(5):
        window.add(1, 1)
    window.release(1, 1)
    assert not window.take_unblocked(), "a quarter is free"
    window.release(1, 1)
    assert window.take_unblocked() and not window.take_unblocked()


def test_nothing_is_reported_if_nothing_was_refused() -> None:
    window = Window(1_000, 4)
    window.add(1, 1)
    window.release(1, 1)
    assert not window.take_unblocked()


def test_the_weight_of_a_run_has_all_its_texts() -> None:
    plain = make_run("a/b", b"12345", client_id="me")
    assert weight_of([plain]) == 5 + 3 + 2 + RUN_BYTES
    properties = Properties("t", b"12", "r", 1, "m", (("k", "vv"),))
    dressed = make_run("a/b", b"12345", client_id="me", properties=properties)
    assert weight_of([dressed]) == weight_of([plain]) + 8
    assert weight_of([plain, dressed]) == weight_of([plain]) + weight_of([dressed])


def test_batches_are_cut_by_number_and_size() -> None:
    queue = queue_of()
    for _ in range(BATCH_RUNS + 1):
        queue.add_publishes([make_run("t", b"x")], None, 0.0)
    assert [(batch.number, len(batch.runs)) for batch in queue.batches(0, 1)] == [(1, 1_000), (1_001, 1)]
    large = queue_of()
    for _ in range(3):
        large.add_publishes([make_run("t", bytes(BATCH_BYTES // 2))], None, 0.0)
    assert [len(batch.runs) for batch in large.batches(0, 1)] == [1, 1, 1]


def test_what_was_sent_is_not_sent_again_on_the_same_connection() -> None:
    queue = queue_of()
    queue.add_publishes([make_run("t", b"1")], None, 0.0)
    queue.add_forwards(7, [make_run("t", b"2")], 0.0)
    assert len(list(queue.batches(0, 1))) == 2
    assert list(queue.batches(0, 1)) == []
    queue.add_forwards(8, [make_run("t", b"3")], 0.0)
    assert [(batch.number, batch.is_forward) for batch in queue.batches(0, 1)] == [(8, True)]


@pytest.mark.parametrize(("first", "last"), [(2, 2), (1, 4), (1, 0), (0, 1), (2, 1)])
def test_only_the_next_publishes_that_were_sent_are_settled(first: int, last: int) -> None:
    queue = queue_of()
    for _ in range(3):
        queue.add_publishes([make_run("t", b"1")], None, 0.0)
    list(queue.batches(0, 1))
    queue.add_publishes([make_run("t", b"not sent")], None, 0.0)
    assert queue.settle_publishes(first, last) is None
    assert queue.window.messages == 4


def test_forwards_follow_one_another() -> None:
    queue = queue_of()
    assert queue.add_forwards(7, [make_run("t", b"1")], 0.0)
    with pytest.raises(ValueError, match="forward 9 does not follow 7"):
        queue.add_forwards(9, [make_run("t", b"1")], 0.0)
    assert queue.add_forwards(8, [make_run("t", b"1")], 0.0)
    assert queue.confirm_forwards(8)
    assert queue.add_forwards(8, [make_run("t", b"1")], 0.0), "it is confirmed already"
    assert queue.window.messages == 0


def test_confirmation_beyond_what_was_handed_in_confirms_nothing_that_comes_later() -> None:
    queue = queue_of()
    queue.add_forwards(1, [make_run("t", b"1")], 0.0)
    assert queue.confirm_forwards(1_000)
    assert queue.confirmed == 1
    assert queue.add_forwards(2, [make_run("t", b"2")], 0.0)
    assert [(batch.number, len(batch.runs)) for batch in queue.batches(0, 1)] == [(2, 1)]


def test_publishes_of_one_token_are_complete_when_the_last_is_settled() -> None:
    queue = queue_of()
    queue.add_publishes([make_run("t", b"1")] * 3, "a", 0.0)
    queue.add_publishes([make_run("t", b"1")] * 2, "b", 0.0)
    list(queue.batches(0, 1))
    assert queue.settle_publishes(1, 2, "too-large") == []
    done = queue.settle_publishes(3, 4)
    assert done is not None and [(entry.token, entry.code) for entry in done] == [("a", "too-large")]
    assert queue.window.messages == 2
    done = queue.settle_publishes(5, 5)
    assert done is not None and [(entry.token, entry.code) for entry in done] == [("b", "")]
    assert (queue.window.messages, queue.window.bytes) == (0, 0)


def test_forwards_that_are_confirmed_in_part_are_sent_again_together() -> None:
    queue = queue_of()
    queue.add_forwards(5, [make_run("t", b"1")] * 3, 0.0)
    list(queue.batches(0, 1))
    assert queue.confirm_forwards(6)
    queue.on_connected()
    assert [(batch.number, len(batch.runs)) for batch in queue.batches(0, 1)] == [(5, 3)]
    assert queue.confirm_forwards(7)
    assert queue.window.messages == 0


@pytest.mark.parametrize("count", [0, BATCH_RUNS + 1])
def test_no_or_too_many_runs_at_once_are_an_error(count: int) -> None:
    with pytest.raises(ValueError, match="can be handed in at once"):
        queue_of().add_publishes([make_run("t", b"1")] * count, None, 0.0)


def test_batches_have_no_more_runs_than_are_read() -> None:
    queue = queue_of()
    for _ in range(3):
        queue.add_publishes([make_run("t", b"1")] * (BATCH_RUNS - 1), None, 0.0)
    assert [len(batch.runs) for batch in queue.batches(0, 1)] == [BATCH_RUNS - 1] * 3
