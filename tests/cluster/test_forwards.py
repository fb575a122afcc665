"""Numbers of forwards: each is taken once, and none is left out."""

import pytest

from penstock.cluster.forwards import ForwardNumbers, MissingForwards

ROUTE = (1, 2)


def test_what_was_taken_is_skipped() -> None:
    numbers = ForwardNumbers()
    assert numbers.take(ROUTE, 1, 3) == 0
    assert numbers.take(ROUTE, 1, 3) == 3
    assert numbers.take(ROUTE, 2, 4) == 2
    assert numbers.take(ROUTE, 6, 1) == 0


def test_routes_are_counted_apart() -> None:
    numbers = ForwardNumbers()
    assert numbers.take((1, 2), 1, 3) == numbers.take((2, 2), 1, 3) == numbers.take((1, 3), 1, 3) == 0


def test_a_number_that_was_left_out_is_an_error() -> None:
    numbers = ForwardNumbers({ROUTE: 3})
    with pytest.raises(MissingForwards, match=r"forward 5 of \(1, 2\) came after 3"):
        numbers.take(ROUTE, 5, 1)
    assert numbers.take(ROUTE, 4, 1) == 0, "nothing has changed"


def test_a_new_receiver_begins_with_any_number() -> None:
    numbers = ForwardNumbers()
    assert numbers.take(ROUTE, 4_711, 2) == 0
    with pytest.raises(MissingForwards):
        numbers.take(ROUTE, 4_714, 1)


def test_after_a_restart_what_was_stored_is_known() -> None:
    stored = {ROUTE: 7}
    numbers = ForwardNumbers(stored)
    assert numbers.committed(ROUTE) == 7
    assert numbers.take(ROUTE, 6, 4) == 2
    assert stored == {ROUTE: 7}, "the caller's own is not changed"


def test_taken_is_not_committed() -> None:
    numbers = ForwardNumbers()
    numbers.take(ROUTE, 1, 3)
    assert numbers.committed(ROUTE) == 0
    numbers.commit(ROUTE, 2)
    assert numbers.committed(ROUTE) == 2
    numbers.commit(ROUTE, 1)
    assert numbers.committed(ROUTE) == 2


@pytest.mark.parametrize("committed", [0, 2])
def test_after_a_rollback_what_was_not_committed_is_taken_again(committed: int) -> None:
    numbers = ForwardNumbers()
    numbers.take(ROUTE, 1, 5)
    if committed:
        numbers.commit(ROUTE, committed)
    numbers.rollback(ROUTE)
    assert numbers.take(ROUTE, 1, 5) == committed
