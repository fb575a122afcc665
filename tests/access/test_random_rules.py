"""Random rules, filters and topics from a small alphabet: the server decides as the naive model does."""

from pathlib import Path
from random import Random

import pytest

from penstock.common.topics import covers, matches
from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.errors import NotAuthorized
from tests.access.naive import Rights, naive_covers, naive_matches
from tests.access.random_rules import make_filter, make_rights, make_topic
from tests.fuzz.seeds import new_dice
from tests.support.broker import Stage

STORED = "$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
USERS = ("alice", "a", "b", "$x", "%c", "é")
CLIENT_IDS = ("a", "b", "", "+", "#", "a/b", "$x", "%u", "..", "e\u0301")
RULES_FOR_EACH = 25
"""Filters and topics that each list of rules is asked for."""


@pytest.fixture
def dice() -> Random:
    return new_dice()


def test_matching_and_covering_agree_with_the_naive_model(dice: Random, scale: int) -> None:
    """A million triples in a soak."""
    count = 10_000 if scale == 1 else 1_000_000
    matched = covered = 0
    for _ in range(count):
        rule, filter, topic = make_filter(dice), make_filter(dice), make_topic(dice)
        triple = (rule, filter, topic)
        assert matches(filter, topic) == naive_matches(filter, topic), triple
        assert covers(rule, filter) == naive_covers(rule, filter), triple
        if covers(rule, filter) and matches(filter, topic):
            assert matches(rule, topic), triple
            covered += 1
        matched += matches(filter, topic)
    assert matched > count // 20 and covered > count // 200


def test_lists_of_rules_decide_as_the_naive_model(dice: Random, scale: int, tmp_path: Path) -> None:
    """A hundred thousand in a soak, because each list is read from a file."""
    count = 10_000 if scale == 1 else 100_000
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    passwords.write_text("".join(f"{user}:{STORED}\n" for user in USERS), encoding="utf-8")
    granted = 0
    for _ in range(count // RULES_FOR_EACH):
        user, everyone, client_id = dice.choice(USERS), make_rights(dice), dice.choice(CLIENT_IDS)
        own, other = make_rights(dice), make_rights(dice)
        sections = (("*", everyone), (user, own), ("somebody else", other))
        lines = [line for name, rights in sections for line in (f"user {name}", *rights.lines())]
        acl.write_text("\n".join([*lines, "anonymous", "both #"]), encoding="utf-8")
        access = FileAccess.load(passwords, acl, allow_anonymous=True)
        mine = Rights(everyone.read + own.read, everyone.write + own.write)
        identity = Identity(user, client_id)
        for _ in range(RULES_FOR_EACH):
            filter, topic = make_filter(dice), make_topic(dice)
            case = (lines, user, client_id, filter, topic)
            may = access.may_subscribe(identity, filter)
            assert may == mine.may_subscribe(filter, user, client_id), case
            assert access.may_read(identity, topic) == mine.may_read(topic, user, client_id), case
            if not topic.startswith("$"):  # which core refuses whatever the list says
                assert access.may_publish(identity, topic) == mine.may_write(topic, user, client_id), case
            if may and naive_matches(filter, topic):
                assert access.may_read(identity, topic), case
                granted += 1
    assert granted > count // 200


def test_what_arrives_is_what_may_be_read(dice: Random, scale: int, tmp_path: Path) -> None:
    """Through a whole broker: live, retained and shared, and nothing that the rules do not give."""
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    passwords.write_text(f"alice:{STORED}\nowner:{STORED}\n", encoding="utf-8")
    arrived = refused = 0
    for _ in range(100 * scale):
        rights = make_rights(dice)
        acl.write_text("\n".join(["user owner", "both #", "user alice", *rights.lines()]), encoding="utf-8")
        stage = Stage(access=FileAccess.load(passwords, acl, allow_anonymous=False))
        owner, alice = stage.client("owner", user="owner"), stage.client("a", user="alice")
        topics = [topic for topic in (make_topic(dice) for _ in range(20)) if topic[0] != "$"]
        for number, topic in enumerate(topics):
            owner.publish(topic, b"kept %d" % number, retain=True)
        for filter in (make_filter(dice) for _ in range(10)):
            is_shared = dice.random() < 0.3
            try:
                alice.subscribe(f"$share/g/{filter}" if is_shared else filter)
            except NotAuthorized:
                refused += 1
                assert not rights.may_subscribe(filter, "alice", "a"), (rights, filter)
            else:
                assert rights.may_subscribe(filter, "alice", "a"), (rights, filter)
        for number, topic in enumerate(topics):
            owner.publish(topic, b"live %d" % number)
        stage.settle()
        for delivered in alice.take():
            arrived += 1
            assert rights.may_read(delivered.topic, "alice", "a"), (rights, delivered)
    assert arrived > 100 and refused > 100
