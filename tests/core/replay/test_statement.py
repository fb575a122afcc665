"""The statements of chunks, added up."""

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Gap, Missing, Statement
from penstock.core.replay.statement import MOST_TOLD, Account
from penstock.model import Reason


def at(offset: int) -> Cursor:
    return Cursor((Position("00" * 8, 1, offset),))


def said(served: int, *missing: Missing, gaps: tuple[Gap, ...] = ()) -> Statement:
    return Statement(None, at(0), served, missing, False, gaps)


def test_what_was_served_is_added_up_from_the_first_place_to_the_last() -> None:
    account = Account(at(3), 3)
    account.add(said(2), 7)
    account.add(said(5), 20)
    assert account.statement(at(20)) == Statement(at(3), at(20), 7)


def test_losses_that_go_on_are_one_entry() -> None:
    account = Account(at(0), 0)
    account.add(said(1, Missing("a", None, 3, Reason.EVICTED), Missing("b", 1, 2, Reason.EVICTED)), 9)
    account.add(said(1, Missing("a", 4, 6, Reason.EVICTED), Missing("a", 7, 7, Reason.EXPIRED)), 20)
    account.add(said(0, Missing("a", 9, 9, Reason.EXPIRED)), 30)
    assert account.statement(at(30)).missing == (
        Missing("a", None, 6, Reason.EVICTED),
        Missing("b", 1, 2, Reason.EVICTED),
        Missing("a", 7, 7, Reason.EXPIRED),
        Missing("a", 9, 9, Reason.EXPIRED),
    )


def test_more_losses_than_can_be_told_one_by_one_are_told_as_gaps() -> None:
    account = Account(at(5), 5)
    account.add(said(0, *(Missing(f"t{n}", 1, 1, Reason.EVICTED) for n in range(MOST_TOLD + 1))), 2_000)
    account.add(said(0, Missing("x", 1, 1, Reason.EVICTED), Missing("y", 1, 1, Reason.EXPIRED)), 3_000)
    statement = account.statement(at(3_000))
    assert len(statement.missing) == MOST_TOLD
    assert statement.gaps == (Gap(6, 3_000, Reason.EVICTED), Gap(6, 3_000, Reason.EXPIRED))


def test_more_gaps_than_can_be_told_one_by_one_become_wider() -> None:
    account = Account(at(0), 0)
    gaps = tuple(Gap(10 * n + 1, 10 * n + 2, Reason.DAMAGED) for n in range(MOST_TOLD + 2))
    account.add(said(0, gaps=gaps), 20_000)
    told = account.statement(at(20_000)).gaps
    assert told[:MOST_TOLD] == gaps[:MOST_TOLD]
    assert told[MOST_TOLD:] == (Gap(gaps[MOST_TOLD].first, gaps[-1].last, Reason.DAMAGED),)
