"""Groups and audiences: members in classes by form, and nobody twice."""

import pytest

from penstock.core.delivery.policy import Limits
from penstock.core.ports.connection import Encoding
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import NOBODY, Audience, Group
from penstock.core.subscriptions.shared import SharedGroup
from penstock.core.subscriptions.subscription import Options, Subscription
from penstock.model import Policy
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_session


def subscribe(
    session: Session, group: Group[Session], encoding: Encoding, policy: Policy = Policy.DROP_NEWEST
) -> Subscription:
    """What the broker does: leave with the old subscription, join with the new one."""
    old = session.subscriptions.get(group.filter)
    if old is not None:
        group.leave(session, old)
    subscription = Subscription(group.filter, Options(), encoding, policy)
    session.subscriptions[group.filter] = subscription
    group.join(session, subscription)
    return subscription


def unsubscribe(session: Session, group: Group[Session]) -> None:
    group.leave(session, session.subscriptions.pop(group.filter))


def wishes(audience: Audience[Session]) -> dict[str, Encoding]:
    """The form in which each session gets a message; everyone has exactly one."""
    found: dict[str, Encoding] = {}
    for encoding, members in audience.classes():
        for session in members:
            assert session.client_id not in found, "one copy for each"
            found[session.client_id] = encoding
    return found


@pytest.fixture
def people() -> list[Session]:
    return [make_session(name) for name in "abcd"]


def test_members_with_equal_forms_are_one_class(people: list[Session]) -> None:
    group = Group[Session]("x")
    for session in people[:2]:
        subscribe(session, group, PlainEncoding(qos=1))
    subscribe(people[2], group, PlainEncoding())
    assert {encoding: len(members) for encoding, members in group.classes.items()} == {
        PlainEncoding(qos=1): 2,
        PlainEncoding(): 1,
    }
    assert len(group) == 3


def test_a_class_goes_with_its_last_member(people: list[Session]) -> None:
    group = Group[Session]("x")
    subscribe(people[0], group, PlainEncoding(qos=1))
    subscribe(people[1], group, PlainEncoding())
    unsubscribe(people[0], group)
    assert list(group.classes) == [PlainEncoding()]
    unsubscribe(people[1], group)
    assert not group


def test_who_is_in_several_groups_gets_one_copy_in_a_merged_form(people: list[Session]) -> None:
    plain, wild, other = Group[Session]("x"), Group[Session]("+"), Group[Session]("#")
    audience = Audience((plain, wild, other), ())
    subscribe(people[0], plain, PlainEncoding(qos=0, identifiers=(1,)))
    subscribe(people[0], wild, PlainEncoding(qos=2, identifiers=(2,)))
    subscribe(people[0], other, PlainEncoding(qos=1, identifiers=(3,)))
    subscribe(people[1], wild, PlainEncoding(qos=1))
    subscribe(people[2], other, PlainEncoding(qos=1))
    assert wishes(audience) == {
        "a": PlainEncoding(qos=2, identifiers=(1, 2, 3)),
        "b": PlainEncoding(qos=1),
        "c": PlainEncoding(qos=1),
    }
    assert len(audience) == 3


def test_the_policy_of_the_highest_service_decides_for_a_merged_copy(people: list[Session]) -> None:
    plain, wild = Group[Session]("x"), Group[Session]("+")
    subscribe(people[0], plain, PlainEncoding(qos=0), Policy.BLOCK)
    subscribe(people[0], wild, PlainEncoding(qos=1), Policy.DROP_OLDEST)
    ((_, members),) = Audience((plain, wild), ()).classes()
    assert members[people[0]].policy is Policy.DROP_OLDEST


def test_who_is_in_two_small_groups_beside_a_large_one_gets_one_copy(people: list[Session]) -> None:
    large, *small = Group[Session]("#"), Group[Session]("x"), Group[Session]("+")
    for session in people[1:]:
        subscribe(session, large, PlainEncoding())
    for group in small:
        subscribe(people[0], group, PlainEncoding())
    assert sorted(wishes(Audience((large, *small), ()))) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("others", [0, 3])
def test_every_change_of_a_member_shows_at_once(people: list[Session], others: int) -> None:
    plain, wild = Group[Session]("x"), Group[Session]("+")
    audience = Audience((plain, wild), ())
    for session in people[1 : 1 + others]:  # whichever group is the larger one
        subscribe(session, wild, PlainEncoding())
    rest = {session.client_id: PlainEncoding() for session in people[1 : 1 + others]}
    me = people[0]

    subscribe(me, plain, PlainEncoding(qos=1))
    assert wishes(audience) == rest | {"a": PlainEncoding(qos=1)}
    subscribe(me, wild, PlainEncoding(qos=2))
    assert wishes(audience) == rest | {"a": PlainEncoding(qos=2)}
    subscribe(me, wild, PlainEncoding(qos=0))  # other options in the same groups
    assert wishes(audience) == rest | {"a": PlainEncoding(qos=1)}
    subscribe(me, plain, PlainEncoding(qos=0, identifiers=(7,)))
    assert wishes(audience) == rest | {"a": PlainEncoding(qos=0, identifiers=(7,))}
    unsubscribe(me, plain)
    assert wishes(audience) == rest | {"a": PlainEncoding(qos=0)}
    unsubscribe(me, wild)
    assert wishes(audience) == rest


def test_one_policy_replaced_by_another_shows_at_once(people: list[Session]) -> None:
    plain, wild = Group[Session]("x"), Group[Session]("+")
    audience = Audience((plain, wild), ())
    for policy in (Policy.BLOCK, Policy.DISCONNECT):
        subscribe(people[0], plain, PlainEncoding(), policy)
        ((_, members),) = audience.classes()
        assert members[people[0]].policy is policy


def test_the_table_is_made_again_only_after_a_change(people: list[Session]) -> None:
    plain, wild = Group[Session]("x"), Group[Session]("+")
    audience = Audience((plain, wild), ())
    subscribe(people[0], plain, PlainEncoding())
    table = audience.classes()
    assert audience.classes() is table
    subscribe(people[1], wild, PlainEncoding())
    assert audience.classes() is not table


def test_a_shared_group_counts_once_however_many_are_in_it(people: list[Session]) -> None:
    shared = SharedGroup[Session]("$share/g/x", "x", Limits(1, 1))
    audience = Audience((), (shared,))
    assert len(audience) == 0
    for session in people:
        shared.join(session, Subscription("$share/g/x", Options(), PlainEncoding(), Policy.BLOCK))
    assert len(audience) == 1
    assert list(audience.classes()) == []


def test_cursors_of_a_shared_group_count_as_long_as_somebody_learns_them(people: list[Session]) -> None:
    shared = SharedGroup[Session]("$share/g/x", "x", Limits(1, 1))
    audience = Audience((), (shared,))
    plain, placed = (
        Subscription("$share/g/x", Options(), PlainEncoding(has_cursor=has_cursor), Policy.BLOCK)
        for has_cursor in (False, True)
    )
    shared.join(people[0], plain)
    assert not audience.has_cursors
    shared.join(people[1], placed)
    assert audience.has_cursors
    shared.join(people[1], plain)
    assert not audience.has_cursors
    shared.join(people[1], placed)
    shared.leave(people[1], placed)
    assert not audience.has_cursors


def test_nobody_is_an_audience_without_anyone() -> None:
    assert not NOBODY
    assert len(NOBODY) == 0
    assert list(NOBODY.classes()) == []
