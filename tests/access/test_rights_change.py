"""Rights that were taken away: nothing that waits somewhere still reaches who may not read it any more.

The same stories are told through the doors in the table of attempts. Here they are told of every place in
core where a message can wait, because no door can be made to wait in all of them.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.access.file_access import FileAccess
from tests.support.broker import Client, Stage

STORED = "$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
USERS = ("owner", "friend", "alice")
BEFORE = "user owner\nboth #\nuser friend\nsubscribe #\nuser alice\nsubscribe secret/#\nsubscribe open/#\n"
AFTER = BEFORE.replace("subscribe secret/#\n", "")


class Theatre:
    """A broker with the owner of the secrets, whose rules can change."""

    def __init__(self, folder: Path) -> None:
        self._users, self._acl = folder / "users", folder / "acl"
        self._users.write_text("".join(f"{user}:{STORED}\n" for user in USERS))
        self._acl.write_text(BEFORE)
        self._access = FileAccess.load(self._users, self._acl, False)
        self.stage = Stage(access=self._access)
        self.owner = self.stage.client("owner", user="owner")

    def alice(self, *, expiry: float = 3600.0, room_bytes: int | None = None) -> Client:
        return self.stage.client("alice", user="alice", clean=False, expiry=expiry, room_bytes=room_bytes)

    def publish(self, *, retain: bool = False) -> None:
        """A secret, and something that stays open."""
        self.owner.publish("secret/a", b"secret", qos=1, retain=retain)
        self.owner.publish("open/a", b"open", qos=1, retain=retain)
        self.stage.settle()

    def take_rights_away(self, without: str | None = None) -> None:
        """Take the right to read secrets from alice, and perhaps somebody's name from the users."""
        self._acl.write_text(AFTER)
        users = [user for user in USERS if user != without]
        self._users.write_text("".join(f"{user}:{STORED}\n" for user in users))
        self._access.reload()
        self.stage.broker.recheck_rights()
        self.stage.settle()


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


def in_the_outbox(theatre: Theatre) -> Callable[[], Client]:
    alice = theatre.alice()
    alice.subscribe("secret/#", 1)
    alice.subscribe("open/#", 1)
    alice.pause()
    theatre.publish()

    def go_on() -> Client:
        alice.unpause()
        return alice

    return go_on


def in_the_outbox_of_a_passing_guest(theatre: Theatre) -> Callable[[], Client]:
    alice = theatre.alice(expiry=0)
    alice.subscribe("secret/#")
    alice.subscribe("open/#")
    alice.pause()
    theatre.publish()

    def go_on() -> Client:
        alice.unpause()
        return alice

    return go_on


def offline_queue(theatre: Theatre) -> Callable[[], Client]:
    alice = theatre.alice()
    alice.subscribe("secret/#", 1)
    alice.subscribe("open/#", 1)
    alice.disconnect()
    theatre.publish()
    return theatre.alice


def on_its_way(theatre: Theatre) -> Callable[[], Client]:
    alice = theatre.alice()
    alice.subscribe("secret/#", 1)
    alice.subscribe("open/#", 1)
    theatre.publish()
    assert len(alice.take()) == 2
    alice.drop()
    return theatre.alice


def on_its_way_before_the_connection_broke(theatre: Theatre) -> Callable[[], Client]:
    alice = theatre.alice()
    alice.subscribe("secret/#", 1)
    alice.subscribe("open/#", 1)
    theatre.publish()
    assert len(alice.take()) == 2

    def go_on() -> Client:
        alice.drop()
        return theatre.alice()

    return go_on


def in_the_tick(theatre: Theatre) -> Callable[[], Client]:
    alice = theatre.alice()
    alice.subscribe("secret/#", 1)
    alice.subscribe("open/#", 1)
    alice.disconnect()
    theatre.owner.publish("secret/a", b"secret", qos=1)
    theatre.owner.publish("open/a", b"open", qos=1)
    return theatre.alice  # nothing has been flushed yet


def kept_and_not_sent_yet(theatre: Theatre) -> Callable[[], Client]:
    theatre.publish(retain=True)
    alice = theatre.alice()
    alice.pause()
    alice.subscribe("secret/#", 1)
    alice.subscribe("open/#", 1)
    theatre.stage.settle()

    def go_on() -> Client:
        alice.unpause()
        return alice

    return go_on


@pytest.mark.parametrize(
    "place",
    [
        in_the_outbox,
        in_the_outbox_of_a_passing_guest,
        offline_queue,
        on_its_way,
        on_its_way_before_the_connection_broke,
        in_the_tick,
        kept_and_not_sent_yet,
    ],
)
def test_what_waits_is_not_sent_once_it_may_not_be_read(
    theatre: Theatre, place: Callable[[Theatre], Callable[[], Client]]
) -> None:
    go_on = place(theatre)
    theatre.take_rights_away()
    alice = go_on()
    theatre.stage.settle()
    assert alice.take_and_acknowledge() == [b"open"]
    theatre.publish()
    assert alice.take_payloads() == [b"open"]


@pytest.mark.parametrize("place", [in_the_outbox, offline_queue])
def test_what_is_not_sent_for_want_of_rights_is_recorded(
    theatre: Theatre, place: Callable[[Theatre], Callable[[], Client]]
) -> None:
    place(theatre)
    theatre.take_rights_away()
    assert theatre.stage.why("secret/a", 1, "alice") == "not-authorized"


def test_what_a_member_of_a_group_had_not_got_goes_to_who_may_read_it(theatre: Theatre) -> None:
    alice, friend = theatre.alice(), theatre.stage.client("friend", user="friend")
    alice.subscribe("$share/g/secret/#", 1)
    alice.pause()
    theatre.publish()
    friend.subscribe("$share/g/secret/#", 1)
    theatre.take_rights_away()
    alice.unpause()
    theatre.stage.settle()
    assert alice.take_payloads() == []
    assert friend.take_payloads() == [b"secret"]


def test_what_the_unknown_leave_behind_reaches_nobody_who_may_not_read_it(theatre: Theatre) -> None:
    alice, friend = theatre.alice(), theatre.stage.client("friend", user="friend", expiry=100.0)
    for member in (friend, alice):
        member.subscribe("$share/g/secret/#", 1)
    theatre.publish()
    theatre.publish()
    assert len(alice.take()) == len(friend.take()) == 1
    theatre.take_rights_away(without="friend")
    assert alice.take_payloads() == []
    assert theatre.stage.why("secret/a", 1, "$share/g/secret/#") == "session-ended"


def test_what_a_member_had_on_its_way_goes_to_the_others_when_it_leaves(theatre: Theatre) -> None:
    alice, friend = theatre.alice(), theatre.stage.client("friend", user="friend")
    alice.subscribe("$share/g/secret/#", 1)
    theatre.publish()
    assert alice.take_payloads() == [b"secret"]
    friend.subscribe("$share/g/secret/#", 1)
    theatre.take_rights_away()
    alice.drop()
    theatre.stage.settle()
    assert friend.take_payloads() == [b"secret"]


def test_a_number_at_qos_2_is_not_free_before_its_client_says_so(theatre: Theatre) -> None:
    alice = theatre.alice()
    alice.subscribe("secret/#", 2)
    theatre.owner.publish("secret/a", b"secret", qos=2)
    theatre.stage.settle()
    (delivered,) = alice.take()
    alice.drop()
    theatre.take_rights_away()
    alice = theatre.alice()
    assert alice.take() == []
    assert alice.session.inflight is not None
    assert list(alice.session.inflight.entries) == [delivered.number]
