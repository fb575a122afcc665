"""Shared groups: one member gets each message, and every member has its turn."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.delivery.inflight import Inflight
from penstock.core.delivery.policy import Limits
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedEncoding, SharedGroup, reencode_any
from penstock.core.subscriptions.subscription import Options, Subscription
from penstock.model import Policy
from tests.support.connection import MemoryConnection
from tests.support.encodings import PlainEncoding
from tests.support.samples import fields_of, make_run, make_session

FILTER = "$share/g/x"


def make_group() -> SharedGroup[Session]:
    return SharedGroup(FILTER, "x", Limits(10, 1_000))


def join(group: SharedGroup[Session], session: Session, qos: int = 0) -> None:
    subscription = Subscription(FILTER, Options(), PlainEncoding(qos=qos), Policy.DROP_NEWEST)
    session.subscriptions[FILTER] = subscription
    group.join(session, subscription)


def leave(group: SharedGroup[Session], session: Session) -> None:
    group.leave(session, session.subscriptions.pop(FILTER))


def flowing(name: str) -> Session:
    return make_session(name, MemoryConnection())


def lagging(name: str) -> Session:
    return make_session(name, MemoryConnection(), is_flowing=False)


def away(name: str) -> Session:
    return make_session(name)


MAKE = {"flowing": flowing, "lagging": lagging, "away": away}


def choose(group: SharedGroup[Session], times: int) -> "Counter[str]":
    chosen = [group.choose() for _ in range(times)]
    return Counter(session.client_id for session in chosen if session is not None)


@given(st.lists(st.sampled_from(("flowing", "lagging", "away")), max_size=8), st.integers(0, 40))
def test_everyone_who_can_take_a_message_gets_an_equal_share(states: list[str], messages: int) -> None:
    group = make_group()
    people = [MAKE[state](f"{state}{number}") for number, state in enumerate(states)]
    for session in people:
        join(group, session)
    expected = [session.client_id for session in people if session.client_id.startswith("flowing")]
    chosen = choose(group, messages)
    assert set(chosen) <= set(expected)
    assert chosen.total() == (messages if expected else 0)
    shares = [chosen[name] for name in expected] or [0]
    assert max(shares) - min(shares) <= 1


def test_messages_go_round_in_the_order_of_joining() -> None:
    group = make_group()
    for name in "abc":
        join(group, flowing(name))
    chosen = [group.choose() for _ in range(6)]
    assert "".join(session.client_id for session in chosen if session) == "abcabc"


def test_members_that_come_and_go_do_not_take_the_turn_of_those_who_stay() -> None:
    group = make_group()
    people = [flowing(name) for name in "abc"]
    for session in people:
        join(group, session)
    chosen: Counter[str] = Counter()
    for _ in range(30):
        chosen += choose(group, 1)
        visitor = lagging("visitor")
        join(group, visitor)
        leave(group, visitor)
    assert chosen == {"a": 10, "b": 10, "c": 10}


def test_a_member_that_changes_its_subscription_keeps_its_turn() -> None:
    group = make_group()
    people = [flowing(name) for name in "ab"]
    for session in people:
        join(group, session)
    assert group.choose() is people[0]
    join(group, people[0], qos=1)
    assert group.choose() is people[1]
    assert group.members[people[0]].encoding.qos == 1


def test_a_member_that_lags_is_passed_over_until_it_keeps_up() -> None:
    group = make_group()
    slow, quick = lagging("slow"), flowing("quick")
    join(group, slow)
    join(group, quick)
    assert choose(group, 3) == {"quick": 3}
    slow.is_flowing = True
    assert choose(group, 4) == {"quick": 2, "slow": 2}


def test_nobody_is_chosen_while_all_lag() -> None:
    group = make_group()
    people = [lagging(name) for name in "abc"]
    for session in people:
        join(group, session)
    assert group.choose() is None
    people[0].is_flowing = True
    assert group.choose() is people[0]


def test_a_member_whose_window_is_full_is_passed_over() -> None:
    group = make_group()
    full, free = flowing("full"), flowing("free")
    full.inflight = Inflight(limit=0)
    join(group, full)
    join(group, free)
    assert choose(group, 3) == {"free": 3}


def test_nobody_is_chosen_while_nobody_is_connected() -> None:
    group = make_group()
    assert group.choose() is None
    join(group, away("a"))
    assert group.choose() is None
    join(group, lagging("b"))
    assert group.choose() is None


def test_a_member_is_chosen_from_its_arrival_to_its_departure_and_after_those_who_were_there() -> None:
    group = make_group()
    guest, host = away("guest"), flowing("host")
    join(group, guest)
    join(group, host)
    assert choose(group, 3) == {"host": 3}
    guest.connection, guest.is_flowing = MemoryConnection(), True
    group.arrive(guest)
    assert [group.choose(), group.choose()] == [host, guest]
    group.arrive(host)  # it was there already, and keeps its turn
    assert group.choose() is host
    group.depart(guest)
    group.depart(guest)
    assert choose(group, 3) == {"host": 3}
    assert set(group.members) == {guest, host}


def test_a_member_that_left_is_not_chosen_any_more() -> None:
    group = make_group()
    session = flowing("a")
    join(group, session)
    leave(group, session)
    assert group.choose() is None


class Watched:
    """A member that is offline and counts how often it was looked at."""

    looks = 0

    def __init__(self) -> None:
        self.groups: dict[Any, None] | None = None
        self.credit: int | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.connection: object | None = None
        self.inflight: Inflight | None = None
        self.keeps_up = self.is_persistent = True

    @property
    def is_flowing(self) -> bool:
        Watched.looks += 1
        return False

    @is_flowing.setter
    def is_flowing(self, value: bool) -> None:
        pass


def test_members_that_are_away_are_not_even_looked_at() -> None:
    group: SharedGroup[Session | Watched] = SharedGroup(FILTER, "x", Limits(10, 1_000))
    here = flowing("here")
    members: list[Session | Watched] = [*[Watched() for _ in range(100)], here]
    for member in members:
        subscription = Subscription(FILTER, Options(), PlainEncoding(qos=1), Policy.DROP_NEWEST)
        member.subscriptions[FILTER] = subscription
        group.join(member, subscription)
    Watched.looks = 0
    assert [group.choose() for _ in range(5)] == [here] * 5
    assert Watched.looks == 0


def test_a_session_knows_the_groups_it_is_in() -> None:
    one, other = make_group(), make_group()
    session = flowing("a")
    assert session.groups is None
    join(one, session)
    join(other, session)
    assert list(session.groups or ()) == [one, other]
    leave(one, session)
    assert list(session.groups or ()) == [other]


def test_a_group_is_owed_messages_only_if_a_member_wants_them_acknowledged() -> None:
    group = make_group()
    first, second = away("a"), away("b")
    join(group, first)
    assert not group.queues_offline
    join(group, second, qos=1)
    assert group.queues_offline
    join(group, second, qos=0)
    assert not group.queues_offline
    join(group, second, qos=2)
    leave(group, second)
    assert not group.queues_offline


def test_who_wants_messages_acknowledged_decides_how_they_are_kept_before_who_is_there() -> None:
    group = make_group()
    here, wanting = flowing("here"), away("wanting")
    join(group, here)
    assert group.speaker is group.members[here]
    join(group, wanting, qos=1)
    assert group.speaker is group.members[wanting]


def test_a_group_without_members_is_empty() -> None:
    group = make_group()
    session = flowing("a")
    join(group, session)
    assert group
    leave(group, session)
    assert not group


def test_a_members_form_writes_what_its_own_would_and_knows_the_group() -> None:
    group = make_group()
    session = flowing("a")
    join(group, session, qos=1)
    encoding = group.members[session].encoding
    own = PlainEncoding(qos=1)
    runs = [make_run("x", b"1", b"2", qos=1, sequence=4)]
    assert isinstance(encoding, SharedEncoding)
    assert encoding.group is group
    assert (encoding.qos, encoding.no_local, encoding.limit_bytes) == (1, False, 0)
    assert encoding.encode(runs, 0.0) == own.encode(runs, 0.0)
    frames, expected = encoding.frames(runs, 0.0, again=True), own.frames(runs, 0.0, again=True)
    assert [(*frame[:2], fields_of(frame[2])) for frame in frames] == [
        (*frame[:2], fields_of(frame[2])) for frame in expected
    ]
    assert encoding.oversize(runs, 0.0) == []
    assert encoding.as_retained() == own.as_retained()
    assert encoding.merge(PlainEncoding(qos=2)) == PlainEncoding(qos=2)


def test_a_form_that_is_remade_keeps_its_group() -> None:
    group = make_group()
    remade = reencode_any(
        SharedEncoding(PlainEncoding(qos=1), group),
        lambda encoding: PlainEncoding(qos=encoding.qos, limit_bytes=9),
    )
    assert isinstance(remade, SharedEncoding)
    assert (remade.encoding, remade.group) == (PlainEncoding(qos=1, limit_bytes=9), group)
    assert reencode_any(PlainEncoding(), lambda _: PlainEncoding(qos=2)) == PlainEncoding(qos=2)


def test_a_group_is_kept_as_soon_as_one_that_comes_back_wants_messages_acknowledged() -> None:
    group = make_group()
    guest, host = flowing("guest"), flowing("host")
    host.expiry = 60.0
    join(group, guest, qos=1)
    join(group, host)
    assert not group.is_kept
    join(group, host, qos=1)
    assert group.is_kept
    leave(group, host)
    assert group.is_kept
