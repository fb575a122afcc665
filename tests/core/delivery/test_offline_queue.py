"""What an absent session still gets: a queue nobody can be held or closed for, of runs or of offsets."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.delivery.offline_queue import LogBackedQueue, OfflineQueue
from penstock.core.delivery.policy import Decision, Limits
from penstock.model import Policy
from penstock.runs import Run
from tests.support.encodings import PlainEncoding
from tests.support.samples import changed, make_run

FORM = PlainEncoding(qos=1)
VALUE = PlainEncoding(qos=1, is_retained=True)
WIDE = Limits(1_000, 1_000_000)


def enqueue_offline(
    kind: type[OfflineQueue], policy: Policy, count: int
) -> tuple[list[int], list[int], list[Decision]]:
    """Owe single messages to a session that may be owed three; answer what was kept and what dropped."""
    offline_queue = kind(Limits(3, 100))
    decisions, dropped = [], []
    for offset in range(1, count + 1):
        decision, lost = offline_queue.add(make_run("a", b"x", qos=1, offset=offset), FORM, policy)
        decisions.append(decision)
        dropped += [run.offset for run in lost]
    kept = [*offline_queue.peek(100), *(run.offset for run, _ in offline_queue.take(100))]
    return kept, [*dropped, *offline_queue.take_evicted()], decisions


@pytest.mark.parametrize(
    ("kind", "stored", "first", "place"), [(OfflineQueue, 0, None, None), (LogBackedQueue, 2, 4, 1)]
)
def test_every_queue_says_what_of_it_is_in_the_log_only(
    kind: type[OfflineQueue], stored: int, first: int | None, place: int | None
) -> None:
    offline_queue = kind(WIDE)
    for offset in (4, 6):
        offline_queue.add(make_run("a", b"x", qos=1, offset=offset), FORM, Policy.DROP_NEWEST)
    assert (len(offline_queue), offline_queue.total_bytes) == (2, 2)
    assert (offline_queue.stored, offline_queue.first_offset) == (stored, first)
    assert (offline_queue.place_of(6), offline_queue.place_of(5)) == (place, None)
    assert offline_queue.has_to_fetch is bool(stored)
    assert list(offline_queue.discard_after(4)) == ([6] if stored else [])


@pytest.mark.parametrize("kind", [OfflineQueue, LogBackedQueue])
@pytest.mark.parametrize("policy", [Policy.DROP_NEWEST, Policy.BLOCK, Policy.DISCONNECT])
def test_the_newest_is_dropped_under_every_policy_that_does_not_ask_for_the_oldest(
    kind: type[OfflineQueue], policy: Policy
) -> None:
    kept, dropped, _ = enqueue_offline(kind, policy, 5)
    assert (kept, dropped) == ([1, 2, 3], [4, 5])


@pytest.mark.parametrize("kind", [OfflineQueue, LogBackedQueue])
def test_the_oldest_is_dropped_where_the_policy_says_so(kind: type[OfflineQueue]) -> None:
    kept, dropped, _ = enqueue_offline(kind, Policy.DROP_OLDEST, 5)
    assert (kept, dropped) == ([3, 4, 5], [1, 2])


@pytest.mark.parametrize("kind", [OfflineQueue, LogBackedQueue])
@pytest.mark.parametrize("policy", Policy)
def test_nobody_is_held_and_nothing_closed_for_someone_who_is_not_there(
    kind: type[OfflineQueue], policy: Policy
) -> None:
    _, _, decisions = enqueue_offline(kind, policy, 5)
    assert not any(decision.block or decision.close for decision in decisions)


def stored(*offsets: int, limits: Limits = WIDE) -> LogBackedQueue:
    """A list of offsets, each of a message of ten bytes."""
    offline_queue = LogBackedQueue(limits)
    for offset in offsets:
        offline_queue.add(make_run("a", b"0123456789", qos=1, offset=offset), FORM, Policy.DROP_NEWEST)
    return offline_queue


def test_a_run_is_as_many_offsets_as_it_has_messages() -> None:
    offline_queue = LogBackedQueue(WIDE)
    offline_queue.add(make_run("a", b"1", b"2", b"3", qos=1, offset=7), FORM, Policy.DROP_NEWEST)
    assert (
        list(offline_queue.peek(10)),
        offline_queue.stored,
        len(offline_queue),
        offline_queue.first_offset,
    ) == ([7, 8, 9], 3, 3, 7)


def test_of_a_run_that_has_no_room_the_rest_is_dropped() -> None:
    offline_queue = stored(1, 2, limits=Limits(4, 1_000))
    run = make_run("a", b"1", b"2", b"3", qos=1, offset=3)
    _, (lost,) = offline_queue.add(run, FORM, Policy.DROP_NEWEST)
    assert (list(offline_queue.peek(10)), lost.offset, lost.count) == ([1, 2, 3, 4], 5, 1)


def test_bytes_are_limited_too_and_free_again_when_messages_were_taken() -> None:
    offline_queue = stored(1, 2, 3, limits=Limits(100, 25))
    assert list(offline_queue.peek(10)) == [1, 2]
    offline_queue.discard(2)
    offline_queue.add(make_run("a", b"0123456789", qos=1, offset=4), FORM, Policy.DROP_NEWEST)
    assert list(offline_queue.peek(10)) == [4]


def test_nothing_is_owed_when_all_was_taken() -> None:
    offline_queue = stored(1, 2)
    assert list(offline_queue.discard(5)) == [1, 2]
    assert (bool(offline_queue), offline_queue.stored, offline_queue.mean_bytes) == (False, 0, 0)
    assert list(offline_queue.discard(1)) == []


def test_offsets_are_taken_up_to_one_whether_it_is_there_or_not() -> None:
    offline_queue = stored(2, 4, 6, 8)
    assert list(offline_queue.discard_through(5)) == [2, 4]
    assert list(offline_queue.discard_through(5)) == []
    assert list(offline_queue.discard_through(6)) == [6]
    assert list(offline_queue.peek(10)) == [8]


def test_offsets_are_taken_from_the_end_too() -> None:
    offline_queue = stored(2, 4, 6, 8)
    offline_queue.discard(1)
    assert list(offline_queue.discard_after(5)) == [6, 8]
    assert list(offline_queue.discard_after(5)) == []
    assert (list(offline_queue.peek(10)), offline_queue.mean_bytes) == ([4], 10)


def test_what_was_fetched_is_owed_again_as_offsets_before_the_rest() -> None:
    offline_queue = stored(5, 6)
    offline_queue.put_back([(make_run("a", b"1", b"2", qos=1, offset=3), FORM)])
    assert (list(offline_queue.peek(10)), offline_queue.messages) == ([3, 4, 5, 6], 0)


def test_a_retained_value_is_owed_as_it_is_because_its_offset_does_not_say_that_it_was_a_value() -> None:
    offline_queue = stored(5)
    values = [make_run(name, b"1", qos=1, offset=1) for name in ("a", "b")]
    offline_queue.put_back(
        [(values[0], VALUE), (make_run("c", b"1", qos=1, offset=4), FORM), (values[1], VALUE)]
    )
    assert [run for run, _ in offline_queue.entries()] == values
    assert list(offline_queue.peek(10)) == [4, 5]
    assert len(offline_queue) == 4


def test_a_message_is_taken_to_weigh_what_messages_weigh_on_average() -> None:
    offline_queue = stored(1, 2)
    offline_queue.add(make_run("a", bytes(40), qos=1, offset=3), FORM, Policy.DROP_NEWEST)
    assert offline_queue.mean_bytes == 20
    offline_queue.discard(1)
    assert offline_queue.mean_bytes == 20


ACTIONS = ("add", "offer", "leap", "discard", "through", "after", "back")


@given(
    st.sampled_from((5_000, (1 << 32) - 60, 1 << 40)),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 40))),
)
def test_offsets_behave_like_a_sorted_list(last: int, steps: list[tuple[str, int]]) -> None:
    offline_queue, model = stored(), list[int]()
    for action, amount in steps * 20:
        if action == "add":
            for _ in range(amount):
                last += 1
                offline_queue.add(make_run("a", b"x", qos=1, offset=last), FORM, Policy.DROP_OLDEST)
                model = [*model, last][-1_000:]
        elif action == "offer" and amount:
            if offline_queue.offer(make_run("a", *[b"x"] * amount, qos=1, offset=last + 1), FORM):
                model += range(last + 1, last + 1 + amount)
            last += amount
        elif action == "leap":
            last += amount << 29
        elif action == "discard":
            assert list(offline_queue.discard(amount)) == model[:amount]
            model = model[amount:]
        elif action == "back" and model and model[0] > amount:
            first = model[0] - 1
            offline_queue.put_back([(make_run("a", b"x", qos=1, offset=first), FORM)])
            model.insert(0, first)
        elif model:
            pivot = model[len(model) // 2]
            if action == "through":
                assert list(offline_queue.discard_through(pivot)) == [
                    offset for offset in model if offset <= pivot
                ]
                model = [offset for offset in model if offset > pivot]
            elif action == "after":
                assert list(offline_queue.discard_after(pivot)) == [
                    offset for offset in model if offset > pivot
                ]
                model = [offset for offset in model if offset <= pivot]
        assert (list(offline_queue.peek(2_000)), len(offline_queue)) == (model, len(model))


def mortal(offset: int, expires_at: float, count: int = 1) -> Run:
    """Messages of ten bytes that expire."""
    run = make_run("a", *[b"0123456789"] * count, qos=1, offset=offset)
    return changed(run, expires_at=expires_at)


def test_offsets_expire_wherever_they_stand_and_make_room() -> None:
    offline_queue = stored(1, 2, limits=Limits(5, 50))
    offline_queue.add(mortal(3, 10.0, count=2), FORM, Policy.DROP_NEWEST)
    offline_queue.add(mortal(5, 20.0), FORM, Policy.DROP_NEWEST)
    assert (
        offline_queue.next_expiry,
        offline_queue.remove_expired(9.0),
        list(offline_queue.take_evicted()),
    ) == (
        10.0,
        [],
        [],
    )
    assert offline_queue.remove_expired(10.0) == []
    assert (offline_queue.take_evicted(), list(offline_queue.peek(10)), offline_queue.next_expiry) == (
        [3, 4],
        [1, 2, 5],
        20.0,
    )
    assert offline_queue.mean_bytes == 10
    offline_queue.remove_expired(20.0)
    assert (offline_queue.take_evicted(), list(offline_queue.peek(10)), offline_queue.may_expire) == (
        [5],
        [1, 2],
        False,
    )


def test_expiries_stay_with_their_offsets_whatever_is_taken_from_before_or_behind_them() -> None:
    offline_queue = stored(*range(1, 2_001), limits=Limits(10_000, 1_000_000))
    offline_queue.add(mortal(2_001, 10.0), FORM, Policy.DROP_NEWEST)
    offline_queue.add(mortal(2_002, 20.0), FORM, Policy.DROP_NEWEST)
    offline_queue.discard(1_999)
    offline_queue.discard_after(2_001)
    offline_queue.add(mortal(2_003, 40.0), FORM, Policy.DROP_NEWEST)
    offline_queue.put_back([(mortal(1_998, 30.0), FORM), (mortal(1_999, 5.0), FORM)])
    offline_queue.remove_expired(12.0)
    assert (offline_queue.take_evicted(), list(offline_queue.peek(10)), offline_queue.next_expiry) == (
        [1_999, 2_001],
        [1_998, 2_000, 2_003],
        30.0,
    )
    offline_queue.remove_expired(30.0)
    assert (list(offline_queue.peek(10)), offline_queue.next_expiry) == ([2_000, 2_003], 40.0)


def test_offsets_still_expire_after_the_entries_before_them_were_detached() -> None:
    offline_queue = LogBackedQueue(WIDE)
    offline_queue.add(mortal(1, 10.0), FORM, Policy.DROP_NEWEST)
    assert list(offline_queue.detach()) == []
    assert offline_queue.may_expire
    offline_queue.remove_expired(10.0)
    assert list(offline_queue.take_evicted()) == [1]
    assert (len(offline_queue), offline_queue.may_expire) == (0, False)


def test_what_was_fetched_and_what_is_still_stored_expire_together() -> None:
    offline_queue = stored(1)
    offline_queue.add_last(mortal(1, 20.0), FORM)
    offline_queue.add(mortal(2, 10.0), FORM, Policy.DROP_NEWEST)
    assert [run.offset for run in offline_queue.remove_expired(15.0)] == []
    assert (offline_queue.take_evicted(), offline_queue.next_expiry) == ([2], 20.0)
    assert [run.offset for run in offline_queue.remove_expired(25.0)] == [1]


def test_nothing_weighs_anything_when_all_is_gone_however_it_went() -> None:
    offline_queue = LogBackedQueue(Limits(100, 100))
    for offset in (1, 2, 3):
        offline_queue.add(make_run("a", bytes(offset), qos=1, offset=offset), FORM, Policy.DROP_NEWEST)
    offline_queue.discard_after(0)
    offline_queue.add(make_run("a", bytes(100), qos=1, offset=4), FORM, Policy.DROP_NEWEST)
    assert list(offline_queue.peek(10)) == [4]


# The quick way in


@pytest.mark.parametrize("kind", [OfflineQueue, LogBackedQueue])
def test_a_run_that_fits_is_taken_without_asking_a_policy_as_with_one(kind: type[OfflineQueue]) -> None:
    offered, added = kind(WIDE), kind(WIDE)
    for offset in (1, 4, 9):
        run = make_run("a", *[b"0123456789"] * 3, qos=1, offset=offset)
        assert offered.offer(run, FORM)
        added.add(run, FORM, Policy.DROP_NEWEST)
    assert len(offered) == len(added) == 9
    if isinstance(offered, LogBackedQueue) and isinstance(added, LogBackedQueue):
        assert list(offered.peek(99)) == list(added.peek(99)) == [1, 2, 3, 4, 5, 6, 9, 10, 11]
        assert offered.mean_bytes == added.mean_bytes


@pytest.mark.parametrize(
    "limits", [Limits(2, 1 << 20), Limits(100, 11)], ids=["one message too many", "one byte too many"]
)
def test_a_run_that_does_not_fit_needs_a_policy(limits: Limits) -> None:
    offline_queue = LogBackedQueue(limits)
    assert not offline_queue.offer(make_run("a", *[b"four"] * 3, qos=1, offset=1), FORM)
    assert not len(offline_queue)


def test_what_may_expire_and_what_follows_it_goes_the_long_way() -> None:
    offline_queue = LogBackedQueue(WIDE)
    assert not offline_queue.offer(mortal(1, 5.0), FORM)
    offline_queue.add(mortal(1, 5.0), FORM, Policy.DROP_NEWEST)
    assert not offline_queue.offer(make_run("a", b"x", qos=1, offset=2), FORM)


def test_many_messages_are_taken_at_once_as_they_are_one_by_one() -> None:
    runs = [make_run("a", *[b"0123456789"] * count, qos=1, offset=count * 10) for count in (1, 2, 3)]
    together, one_by_one = LogBackedQueue(WIDE), LogBackedQueue(WIDE)
    assert together.offer_all([10, 20, 21], sum(len(run.slab) for run in runs[:2]))
    assert together.offer_all(memoryview(array("q", [30, 31, 32])), len(runs[2].slab))
    assert all(one_by_one.offer(run, FORM) for run in runs)
    assert list(together.peek(99)) == list(one_by_one.peek(99)) == [10, 20, 21, 30, 31, 32]
    assert together.mean_bytes == one_by_one.mean_bytes


@pytest.mark.parametrize("limits", [Limits(2, 1 << 20), Limits(100, 11)], ids=["messages", "bytes"])
def test_of_many_messages_nothing_is_taken_at_once_if_one_does_not_fit(limits: Limits) -> None:
    offline_queue = LogBackedQueue(limits)
    assert not offline_queue.offer_all([1, 2, 3], 12)
    assert not len(offline_queue)


def test_many_messages_are_not_taken_at_once_behind_one_that_may_expire() -> None:
    offline_queue = LogBackedQueue(WIDE)
    offline_queue.add(mortal(2, 5.0), FORM, Policy.DROP_NEWEST)
    assert not offline_queue.offer_all([3], 1)
    assert list(offline_queue.peek(10)) == [2]
