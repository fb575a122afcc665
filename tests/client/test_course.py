"""Where a subscription goes on after a connection, decided without one."""

import pytest

from penstock.client.course import Course, Wish
from penstock.client.dialect import Start
from penstock.core.cursor import Cursor
from penstock.core.ports import Position
from penstock.errors import InvalidCursor, NotAuthorized, PenstockError, StorageUnavailable


def at(offset: int) -> str:
    return Cursor((Position("00" * 8, 1, offset),)).encode()


def live(course: Course, *filters: str, cursor: str) -> None:
    """Filters that were added without a past, and agreed to."""
    course.add(filters, Start())
    wish = course.next_wish(1)
    assert wish is not None
    course.on_added(1, cursor, replay_started=False)


def wishes_after_a_loss(course: Course) -> list[tuple[tuple[str, ...], Start]]:
    """What is asked for on the next connection, if each wish is agreed to at once."""
    course.begin()
    asked: list[tuple[tuple[str, ...], Start]] = []
    while (wish := course.next_wish(len(asked) + 100)) is not None:
        asked.append((wish.filters, wish.start))
        course.on_added(wish.request_id, wish.start.after or at(0), replay_started=False)
    return asked


def test_live_filters_go_on_behind_the_last_delivery() -> None:
    course = Course()
    live(course, "a", "b", cursor=at(5))
    course.on_delivery(at(9), is_replay=False, is_retained=False)
    assert course.cursor == at(9)
    assert wishes_after_a_loss(course) == [(("a", "b"), Start(after=at(9)))]


def test_filters_that_never_got_anything_go_on_where_they_were_added() -> None:
    course = Course()
    live(course, "a", cursor=at(5))
    assert wishes_after_a_loss(course) == [(("a",), Start(after=at(5)))]


def test_a_wish_that_was_not_agreed_to_is_asked_again_as_it_was() -> None:
    course = Course()
    course.add(["a"], Start(last=10))
    course.next_wish(1)
    assert wishes_after_a_loss(course) == [(("a",), Start(last=10))]


def test_a_replay_that_was_cut_goes_on_behind_what_came() -> None:
    course = Course()
    live(course, "a", cursor=at(50))
    course.add(["b"], Start(last=10))
    course.next_wish(2)
    course.on_added(2, at(3), replay_started=True)
    course.on_delivery(at(7), is_replay=True, is_retained=False)
    course.on_delivery(at(60), is_replay=False, is_retained=False)  # of "a", meanwhile
    assert course.cursor == at(60)
    assert wishes_after_a_loss(course) == [(("a",), Start(after=at(60))), (("b",), Start(after=at(7)))]


def test_only_one_wish_is_asked_at_a_time_until_its_statement() -> None:
    course = Course()
    course.add(["a"], Start(last=1))
    course.add(["b"], Start())
    first = course.next_wish(1)
    assert first is not None
    assert course.next_wish(2) is None
    course.on_added(1, at(0), replay_started=True)
    assert course.next_wish(2) is None
    assert course.on_statement(1, at(4)) == ("a",)
    second = course.next_wish(2)
    assert second is not None
    assert second.filters == ("b",)


def test_filters_added_later_do_not_bring_what_was_before_them() -> None:
    course = Course()
    live(course, "a", cursor=at(5))
    live(course, "b", cursor=at(20))
    assert wishes_after_a_loss(course) == [(("a",), Start(after=at(5))), (("b",), Start(after=at(20)))]
    course.on_delivery(at(30), is_replay=False, is_retained=False)
    assert wishes_after_a_loss(course) == [(("a", "b"), Start(after=at(30)))]


def test_a_message_that_was_held_back_does_not_move_later_filters_back() -> None:
    course = Course()
    live(course, "a", cursor=at(5))
    live(course, "b", cursor=at(20))
    course.on_delivery(at(10), is_replay=False, is_retained=False)
    assert wishes_after_a_loss(course) == [(("a",), Start(after=at(10))), (("b",), Start(after=at(20)))]


def test_retained_values_that_may_be_on_their_way_are_asked_for_again() -> None:
    course = Course()
    course.add(["a"], Start(retained=True))
    course.next_wish(1)
    course.on_added(1, at(5), replay_started=False)
    course.on_delivery("", is_replay=False, is_retained=True)
    again = [(("a",), Start(after=at(5))), (("a",), Start(retained=True))]
    assert wishes_after_a_loss(course) == again
    course.on_heartbeat(at(6))
    assert wishes_after_a_loss(course) == [(("a",), Start(after=at(6)))]


def test_removed_filters_are_not_asked_for_again() -> None:
    course = Course()
    live(course, "a", "b", cursor=at(5))
    course.add(["c"], Start())
    course.remove(["a", "c"])
    assert course.filters == ("b",)
    assert wishes_after_a_loss(course) == [(("b",), Start(after=at(5)))]


def refuse_resumption(error: PenstockError) -> tuple[Course, Wish | None]:
    course = Course()
    live(course, "a", cursor=at(5))
    course.begin()
    course.next_wish(7)
    return course, course.on_refused(7, error)


def test_a_log_that_forgot_is_read_from_now_on_and_that_is_told() -> None:
    course, refused = refuse_resumption(InvalidCursor("of another log"))
    assert refused is not None
    assert refused.filters == ("a",)
    wish = course.next_wish(8)
    assert wish is not None
    assert (wish.filters, wish.start) == (("a",), Start())


def test_what_may_not_be_read_any_more_is_told_and_not_asked_again() -> None:
    course, refused = refuse_resumption(NotAuthorized("no"))
    assert refused is not None
    assert (course.filters, course.next_wish(8)) == ((), None)


def test_what_cannot_be_read_now_is_asked_for_on_the_next_connection() -> None:
    course, refused = refuse_resumption(StorageUnavailable("disk"))
    assert refused is not None
    assert wishes_after_a_loss(course) == [(("a",), Start(after=at(5)))]


def test_who_asked_for_filters_is_told_once() -> None:
    course, told = Course(), list[PenstockError | None]()
    course.add(["a"], Start(last=1), told.append)
    course.next_wish(1)
    course.on_added(1, at(0), replay_started=True)
    course.begin()
    course.next_wish(2)
    course.on_added(2, at(0), replay_started=True)
    assert told == [None]
    no = NotAuthorized("no")
    course.on_statement(2, at(3))
    course.add(["b"], Start(), told.append)
    course.next_wish(3)
    assert course.on_refused(3, no) is None
    assert told == [None, no]


def test_shared_filters_begin_anew_because_they_have_no_past() -> None:
    course = Course()
    live(course, "$share/g/a", "b", cursor=at(5))
    assert wishes_after_a_loss(course) == [(("b",), Start(after=at(5))), (("$share/g/a",), Start())]


@pytest.mark.parametrize("is_asked", [False, True])
def test_who_waits_for_filters_that_are_removed_waits_no_more(is_asked: bool) -> None:
    course = Course()
    told: list[PenstockError | None] = []
    course.add(["a"], Start(), told.append)
    if is_asked:
        course.next_wish(1)
    course.remove(["a"])
    assert told == [None]
    course.on_added(1, at(5), replay_started=False)
    assert told == [None]


def test_filters_that_go_on_do_not_repeat_what_others_have_brought() -> None:
    course = Course()
    live(course, "a/#", cursor=at(5))
    live(course, "a/b", "c", cursor=at(6))
    course.begin()
    for request_id, filters in ((1, ("a/#",)), (2, ("a/b", "c"))):
        wish = course.next_wish(request_id)
        assert wish is not None
        assert wish.filters == filters
        if request_id == 1:
            assert not course.is_repeated("a/b")
            course.on_added(1, at(9), replay_started=False)
    assert course.is_repeated("a/b")
    assert not course.is_repeated("c")


def test_a_past_that_was_asked_for_comes_also_if_another_filter_has_brought_it() -> None:
    course = Course()
    live(course, "a/#", cursor=at(5))
    course.add(["a/b"], Start(last=10))
    course.next_wish(2)
    assert not course.is_repeated("a/b")
