"""The access list: rules from real files, asked through `FileAccess`, and against a naive model."""

from collections.abc import Callable
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.topics import matches
from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.errors import InvalidConfig
from tests.support.examples import examples

SECRET = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
USERS = f"alice:{SECRET}\nbob:{SECRET}\n"

ALICE = Identity("alice", "pump-1")
BOB = Identity("bob", "pump-2")
ANYONE = Identity(None, "guest")

Load = Callable[..., FileAccess]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write the files and load them."""

    def load(users: str = USERS, acl: str | None = None, allow_anonymous: bool = False) -> FileAccess:
        (tmp_path / "users").write_text(users, encoding="utf-8")
        if acl is not None:
            (tmp_path / "acl").write_text(acl, encoding="utf-8")
        return FileAccess.load(tmp_path / "users", None if acl is None else tmp_path / "acl", allow_anonymous)

    return load


# Doing things

STORY = """\
# who may do what
user alice
publish   sensors/%c/#
subscribe sensors/+/temperature
both      chat/#            # talk

user *            # every verified user
both      home/%u/#
anonymous         # who came without a name
subscribe public/#
"""


def test_the_rules_of_a_file_are_followed(load: Load) -> None:
    access = load(acl=STORY, allow_anonymous=True)
    assert access.may_publish(ALICE, "sensors/pump-1/temperature")
    assert not access.may_publish(ALICE, "sensors/pump-2/temperature")
    assert access.may_subscribe(ALICE, "sensors/+/temperature")
    assert access.may_subscribe(ALICE, "sensors/pump-2/temperature")
    assert not access.may_subscribe(ALICE, "sensors/+/+")
    assert not access.may_subscribe(ALICE, "sensors/#")
    assert access.may_read(ALICE, "sensors/pump-2/temperature")
    assert not access.may_read(ALICE, "sensors/pump-2/pressure")
    assert access.may_publish(ALICE, "chat/a") and access.may_subscribe(ALICE, "chat/#")


def test_rules_of_one_user_do_not_help_another(load: Load) -> None:
    access = load(acl=STORY)
    assert not access.may_publish(BOB, "chat/a")
    assert not access.may_subscribe(BOB, "chat/a")
    assert not access.may_read(BOB, "chat/a")


def test_rules_for_every_user_hold_beside_their_own(load: Load) -> None:
    access = load(acl=STORY)
    assert access.may_publish(ALICE, "home/alice/lamp") and access.may_publish(BOB, "home/bob/lamp")
    assert access.may_subscribe(BOB, "home/bob/#")
    assert not access.may_publish(BOB, "home/alice/lamp")
    assert not access.may_subscribe(BOB, "home/+/lamp")


def test_the_anonymous_have_their_own_rules_only(load: Load) -> None:
    access = load(acl=STORY, allow_anonymous=True)
    assert access.may_subscribe(ANYONE, "public/#") and access.may_read(ANYONE, "public/a")
    assert not access.may_publish(ANYONE, "public/a")
    assert not access.may_publish(ANYONE, "home//lamp")
    assert not access.may_subscribe(ALICE, "public/#")


def test_without_an_access_list_who_came_in_may_do_everything(load: Load) -> None:
    access = load()
    assert access.may_publish(BOB, "a") and access.may_subscribe(BOB, "#") and access.may_read(BOB, "a")


def test_an_empty_access_list_allows_nothing(load: Load) -> None:
    access = load(acl="")
    assert not access.may_publish(ALICE, "a")
    assert not access.may_subscribe(ALICE, "a")
    assert not access.may_read(ALICE, "a")


def test_what_only_two_rules_together_would_cover_is_refused(load: Load) -> None:
    access = load(acl="user alice\nsubscribe a/+\nsubscribe a/+/#\nsubscribe b\nsubscribe b/+/#")
    assert not access.may_subscribe(ALICE, "b/#")
    assert access.may_subscribe(ALICE, "b/+/#")


@pytest.mark.parametrize("name", ["+", "#", "a/b", "", "/", "a/#", "../secret", "a+", "\0"])
def test_a_client_id_cannot_widen_a_rule(load: Load, name: str) -> None:
    access = load(acl="user *\nboth own/%c/#\nboth %c\n")
    identity = Identity("alice", name)
    for topic in (f"own/{name}/x", "own/b/x", "own/a/b", "own//x", name):
        assert not access.may_publish(identity, topic)
        assert not access.may_read(identity, topic)
    for filter in ("own/+/#", "own/#", f"own/{name}", "#", "+", name):
        assert not access.may_subscribe(identity, filter)


def test_a_user_name_cannot_widen_a_rule(load: Load) -> None:
    access = load(users=f"a/b:{SECRET}\n", acl="user *\nboth own/%u/#\n")
    assert access.verify("a/b", b"secret")
    assert not access.may_publish(Identity("a/b", "c"), "own/a/b/x")


def test_a_name_that_looks_like_a_placeholder_is_left_alone(load: Load) -> None:
    access = load(users=f"%c:{SECRET}\n", acl="user *\nboth own/%u/%c\n")
    identity = Identity("%c", "victim")
    assert access.may_publish(identity, "own/%c/victim")
    assert not access.may_publish(identity, "own/victim/victim")


def test_a_client_called_like_a_system_topic_does_not_own_it(load: Load) -> None:
    access = load(acl="user *\nboth %c/#\nboth a/%c\n")
    assert access.may_subscribe(Identity("alice", "pump"), "pump/#")
    assert not access.may_subscribe(Identity("alice", "$SYS"), "$SYS/#")
    assert not access.may_read(Identity("alice", "$SYS"), "$SYS/x")
    assert access.may_read(Identity("alice", "$SYS"), "a/$SYS")


def test_system_topics_are_read_only_where_a_rule_names_them(load: Load) -> None:
    access = load(acl="user alice\nsubscribe #\nuser bob\nsubscribe $SYS/#\n")
    assert access.may_subscribe(ALICE, "#") and not access.may_subscribe(ALICE, "$SYS/#")
    assert not access.may_read(ALICE, "$SYS/x")
    assert not access.may_subscribe(ALICE, "$share/g/a")  # a door that forgot to split it opens nothing
    assert access.may_subscribe(BOB, "$SYS/#") and access.may_read(BOB, "$SYS/x")


def test_topics_are_compared_as_they_are_written(load: Load) -> None:
    access = load(acl="user alice\nboth caf\u00e9/a b\n")
    assert access.may_publish(ALICE, "caf\u00e9/a b")
    assert not access.may_publish(ALICE, "cafe\u0301/a b")
    assert not access.may_publish(ALICE, "caf\u00e9//a b")


def test_users_are_compared_as_they_are_written(load: Load) -> None:
    access = load(users=f"Zo\u00eb:{SECRET}\n", acl="user Zo\u00eb\nboth a\nuser *\nboth own/%u\n")
    assert access.may_publish(Identity("Zo\u00eb", "c"), "a")
    assert access.may_publish(Identity("Zo\u00eb", "c"), "own/Zo\u00eb")
    for topic in ("a", "own/Zo\u00eb"):
        assert not access.may_publish(Identity("Zoe\u0308", "c"), topic)


def test_placeholders_may_stand_in_several_levels_and_below_system_topics(load: Load) -> None:
    access = load(acl="user *\nboth $penstock/%u/x-%c\n")
    assert access.may_read(ALICE, "$penstock/alice/x-pump-1")
    assert not access.may_read(BOB, "$penstock/alice/x-pump-2")


# The file


def test_sections_of_one_user_add_up(load: Load) -> None:
    access = load(acl="user alice\npublish a\nuser bob\npublish b\nuser alice\npublish c\n")
    assert access.may_publish(ALICE, "a") and access.may_publish(ALICE, "c")
    assert not access.may_publish(ALICE, "b")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("publish a\n", 1),
        ("user alice\npublish\n", 2),
        ("user alice\npublish a/#/b\n", 2),
        ("user alice\npublish # everything\n", 2),
        ("user alice\n\n# fine\nsubscribe a+\n", 4),
        ("user alice\nsubscribe $share/g/a\n", 2),
        ("user alice\ndeny a\n", 2),
        ("user alice\nPublish a\n", 2),
        ("user\n", 1),
        ("user # nobody\n", 1),
        ("anonymous alice\n", 1),
        ("anonymous\npublish home/%u\n", 2),
        ("anonymous\npublish a\0\n", 2),
        ("user *\npublish a/%u%c\n", 2),
        ("user *\npublish a/%u-%c/b\n", 2),
        ("user *\npublish %c%c\n", 2),
        ("user *\npublish $%c/b\n", 2),
        ("user *\npublish $SYS-%u/b\n", 2),
    ],
)
def test_a_wrong_line_of_the_access_list_is_named(load: Load, text: str, line: int) -> None:
    with pytest.raises(InvalidConfig, match=f"acl:{line}: "):
        load(acl=text)


# Against a naive model

NAMES = ("a", "b", "$x", "+", "a/b", "")
words = st.sampled_from(("a", "b", "$x", "", "+", "%u", "%c", "p%c"))
topics = (
    st.lists(st.sampled_from(("a", "b", "$x", "", "pa")), min_size=1, max_size=3).map("/".join).filter(bool)
)
identities = st.builds(Identity, st.sampled_from(("a", "b", None)), st.sampled_from(NAMES))


@st.composite
def filters(draw: st.DrawFn) -> str:
    parts = draw(st.lists(words, max_size=3))
    if not parts or draw(st.booleans()):
        parts.append("#")
    return "/".join(parts) or "+"


plain_filters = filters().filter(lambda filter: "%" not in filter)
sections = st.tuples(
    st.sampled_from(("user a", "user b", "user *", "anonymous")),
    st.lists(st.tuples(st.sampled_from(("publish", "subscribe", "both")), filters()), max_size=4),
)
acls = st.lists(sections, max_size=4).map(
    lambda sections: [
        (head, [rule for rule in rules if head != "anonymous" or "%u" not in rule[1]])
        for head, rules in sections
    ]
)
Acl = list[tuple[str, list[tuple[str, str]]]]


def naive_may(acl: Acl, identity: Identity, action: str, topic: str) -> bool:
    """Look at every rule of the list, one after the other."""
    heads = ("anonymous",) if identity.user is None else (f"user {identity.user}", "user *")
    for head, rules in acl:
        for verb, filter in rules:
            if head not in heads or verb not in (action, "both"):
                continue
            names = [identity.user or ""] * ("%u" in filter) + [identity.client_id] * ("%c" in filter)
            if any(name == "" or set(name) & set("+#/") for name in names):
                continue
            plain = filter.replace("%u", identity.user or "").replace("%c", identity.client_id)
            is_system = plain.startswith("$") and not filter.startswith("$")
            if matches(plain, topic) and not is_system:
                return True
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("access")
    (folder / "users").write_text(f"a:{SECRET}\nb:{SECRET}\n")
    return folder


def load_acl(folder: Path, acl: Acl) -> FileAccess:
    lines = (f"{head}\n" + "".join(f"  {verb} {filter}\n" for verb, filter in rules) for head, rules in acl)
    (folder / "acl").write_text("".join(lines))
    return FileAccess.load(folder / "users", folder / "acl", True)


@examples(75)
@given(acls, identities, topics)
def test_rights_agree_with_the_naive_model(folder: Path, acl: Acl, identity: Identity, topic: str) -> None:
    access = load_acl(folder, acl)
    assert access.may_publish(identity, topic) == naive_may(acl, identity, "publish", topic)
    assert access.may_read(identity, topic) == naive_may(acl, identity, "subscribe", topic)


def test_no_message_reaches_a_subscriber_who_may_not_read_it(folder: Path) -> None:
    delivered = 0

    @examples(75)
    @given(acls, identities, plain_filters, st.lists(topics, min_size=5, max_size=20))
    def check(acl: Acl, identity: Identity, filter: str, some_topics: list[str]) -> None:
        nonlocal delivered
        access = load_acl(folder, acl)
        if access.may_subscribe(identity, filter):
            for topic in some_topics:
                if matches(filter, topic):
                    assert naive_may(acl, identity, "subscribe", topic)
                    delivered += 1

    check()
    assert delivered > 20
