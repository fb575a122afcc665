"""Filters of a subscription and their cursors across connections, without a connection."""

import pytest

from penstock.client.grpc.dialect import Start
from penstock.client.grpc.v1.resume import FilterRequest, FilterState
from penstock.common.cursor import Cursor, Position
from penstock.errors import InvalidCursor, NotAuthorized, PenstockError, StorageUnavailable


def at(offset: int) -> str:
    return Cursor((Position("00" * 8, 1, offset),)).encode()


def live(state: FilterState, *filters: str, cursor: str) -> None:
    """Add filters without a replay, and accept them."""
    state.add(filters, Start())
    request = state.next_request(1)
    assert request is not None
    state.on_added(1, cursor, replay_started=False)


def requests_after_a_loss(state: FilterState) -> list[tuple[tuple[str, ...], Start]]:
    """Requests of the next connection, if each is accepted at once."""
    state.reset()
    sent: list[tuple[tuple[str, ...], Start]] = []
    while (request := state.next_request(len(sent) + 100)) is not None:
        sent.append((request.filters, request.start))
        state.on_added(request.request_id, request.start.after or at(0), replay_started=False)
    return sent


def test_live_filters_resume_after_the_last_delivery() -> None:
    state = FilterState()
    live(state, "a", "b", cursor=at(5))
    state.on_delivery(at(9), is_replay=False, is_retained=False)
    assert state.cursor == at(9)
    assert requests_after_a_loss(state) == [(("a", "b"), Start(after=at(9)))]


def test_filters_without_a_delivery_resume_where_they_were_added() -> None:
    state = FilterState()
    live(state, "a", cursor=at(5))
    assert requests_after_a_loss(state) == [(("a",), Start(after=at(5)))]


def test_a_request_without_a_response_is_sent_again_unchanged() -> None:
    state = FilterState()
    state.add(["a"], Start(last=10))
    state.next_request(1)
    assert requests_after_a_loss(state) == [(("a",), Start(last=10))]


def test_an_interrupted_replay_resumes_after_its_last_message() -> None:
    state = FilterState()
    live(state, "a", cursor=at(50))
    state.add(["b"], Start(last=10))
    state.next_request(2)
    state.on_added(2, at(3), replay_started=True)
    state.on_delivery(at(7), is_replay=True, is_retained=False)
    state.on_delivery(at(60), is_replay=False, is_retained=False)  # of "a"
    assert state.cursor == at(60)
    assert requests_after_a_loss(state) == [(("a",), Start(after=at(60))), (("b",), Start(after=at(7)))]


def test_one_request_is_in_progress_until_its_statement() -> None:
    state = FilterState()
    state.add(["a"], Start(last=1))
    state.add(["b"], Start())
    first = state.next_request(1)
    assert first is not None
    assert state.next_request(2) is None
    state.on_added(1, at(0), replay_started=True)
    assert state.next_request(2) is None
    assert state.on_statement(1, at(4)) == ("a",)
    second = state.next_request(2)
    assert second is not None
    assert second.filters == ("b",)


def test_filters_added_later_do_not_replay_earlier_messages() -> None:
    state = FilterState()
    live(state, "a", cursor=at(5))
    live(state, "b", cursor=at(20))
    assert requests_after_a_loss(state) == [(("a",), Start(after=at(5))), (("b",), Start(after=at(20)))]
    state.on_delivery(at(30), is_replay=False, is_retained=False)
    assert requests_after_a_loss(state) == [(("a", "b"), Start(after=at(30)))]


def test_an_older_delivery_does_not_move_later_filters_back() -> None:
    state = FilterState()
    live(state, "a", cursor=at(5))
    live(state, "b", cursor=at(20))
    state.on_delivery(at(10), is_replay=False, is_retained=False)
    assert requests_after_a_loss(state) == [(("a",), Start(after=at(10))), (("b",), Start(after=at(20)))]


def test_retained_values_in_flight_are_requested_again() -> None:
    state = FilterState()
    state.add(["a"], Start(retained=True))
    state.next_request(1)
    state.on_added(1, at(5), replay_started=False)
    state.on_delivery("", is_replay=False, is_retained=True)
    expected = [(("a",), Start(after=at(5))), (("a",), Start(retained=True))]
    assert requests_after_a_loss(state) == expected
    state.on_heartbeat(at(6))
    assert requests_after_a_loss(state) == [(("a",), Start(after=at(6)))]


def test_removed_filters_are_not_requested_again() -> None:
    state = FilterState()
    live(state, "a", "b", cursor=at(5))
    state.add(["c"], Start())
    state.remove(["a", "c"])
    assert state.filters == ("b",)
    assert requests_after_a_loss(state) == [(("b",), Start(after=at(5)))]


def refuse_resumption(error: PenstockError) -> tuple[FilterState, FilterRequest | None]:
    state = FilterState()
    live(state, "a", cursor=at(5))
    state.reset()
    state.next_request(7)
    return state, state.on_refused(7, error)


def test_an_invalid_cursor_is_reported_and_new_messages_are_requested() -> None:
    state, refused = refuse_resumption(InvalidCursor("of another log"))
    assert refused is not None
    assert refused.filters == ("a",)
    request = state.next_request(8)
    assert request is not None
    assert (request.filters, request.start) == (("a",), Start())


def test_a_withdrawn_permission_is_reported_and_not_requested_again() -> None:
    state, refused = refuse_resumption(NotAuthorized("no"))
    assert refused is not None
    assert (state.filters, state.next_request(8)) == ((), None)


def test_a_retryable_refusal_is_requested_again_on_the_next_connection() -> None:
    state, refused = refuse_resumption(StorageUnavailable("disk"))
    assert refused is not None
    assert requests_after_a_loss(state) == [(("a",), Start(after=at(5)))]


def test_the_result_of_a_request_is_reported_once() -> None:
    state, results = FilterState(), list[PenstockError | None]()
    state.add(["a"], Start(last=1), results.append)
    state.next_request(1)
    state.on_added(1, at(0), replay_started=True)
    state.reset()
    state.next_request(2)
    state.on_added(2, at(0), replay_started=True)
    assert results == [None]
    refusal = NotAuthorized("no")
    state.on_statement(2, at(3))
    state.add(["b"], Start(), results.append)
    state.next_request(3)
    assert state.on_refused(3, refusal) is None
    assert results == [None, refusal]


def test_shared_filters_resume_with_new_messages() -> None:
    state = FilterState()
    live(state, "$share/g/a", "b", cursor=at(5))
    assert requests_after_a_loss(state) == [(("b",), Start(after=at(5))), (("$share/g/a",), Start())]


@pytest.mark.parametrize("is_sent", [False, True])
def test_removing_requested_filters_resolves_their_request(is_sent: bool) -> None:
    state = FilterState()
    results: list[PenstockError | None] = []
    state.add(["a"], Start(), results.append)
    if is_sent:
        state.next_request(1)
    state.remove(["a"])
    assert results == [None]
    state.on_added(1, at(5), replay_started=False)
    assert results == [None]


def test_resumed_filters_do_not_repeat_deliveries_of_others() -> None:
    state = FilterState()
    live(state, "a/#", cursor=at(5))
    live(state, "a/b", "c", cursor=at(6))
    state.reset()
    for request_id, filters in ((1, ("a/#",)), (2, ("a/b", "c"))):
        request = state.next_request(request_id)
        assert request is not None
        assert request.filters == filters
        if request_id == 1:
            assert not state.is_duplicate("a/b")
            state.on_added(1, at(9), replay_started=False)
    assert state.is_duplicate("a/b")
    assert not state.is_duplicate("c")


def test_a_requested_replay_is_delivered_even_if_another_filter_delivered_it() -> None:
    state = FilterState()
    live(state, "a/#", cursor=at(5))
    state.add(["a/b"], Start(last=10))
    state.next_request(2)
    assert not state.is_duplicate("a/b")
