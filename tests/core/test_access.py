"""Who comes in and what they may do: passwords with real argon2 at its cheapest, rules from real files."""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.access import (
    REMEMBERED_S,
    SLOW_CHECKS_AT_ONCE,
    Access,
    FileAccess,
    Identity,
    OpenAccess,
    RememberedPasswords,
    hash_password,
    is_password,
    is_user_name,
)
from penstock.core.topics import matches
from penstock.errors import InvalidConfig

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SECRET = CHEAP.hash("secret")
OTHER = CHEAP.hash("other")
USERS = f"alice:{SECRET}\nbob:{OTHER}\n"

ALICE = Identity("alice", "pump-1")
BOB = Identity("bob", "pump-2")
ANYONE = Identity(None, "guest")

Load = Callable[..., FileAccess]


class MovableClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Verifications:
    """What argon2 was asked and what it answered."""

    def __init__(self) -> None:
        self.mismatches = 0
        self.successes = 0


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write the files that are given and load them."""

    def write(name: str, text: str | None) -> Path | None:
        if text is None:
            return None
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        return tmp_path / name

    def load(
        users: str | None = USERS,
        acl: str | None = None,
        allow_anonymous: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> FileAccess:
        return FileAccess.load(write("users", users), write("acl", acl), allow_anonymous, monotonic)

    return load


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> Verifications:
    """Count the calls of the real argon2."""
    seen = Verifications()
    verify = PasswordHasher.verify

    def counting(self: PasswordHasher, hash: str, password: bytes) -> bool:
        try:
            verify(self, hash, password)
        except VerifyMismatchError:
            seen.mismatches += 1
            raise
        seen.successes += 1
        return True

    monkeypatch.setattr(PasswordHasher, "verify", counting)
    return seen


# Coming in


def test_open_access_lets_everyone_do_everything() -> None:
    access: Access = OpenAccess()
    for user, password in ((None, None), ("alice", b"x"), ("alice", None)):
        assert access.verify_now(user, password) is True
        assert access.verify(user, password) is True
    assert (
        access.may_publish(ANYONE, "a") and access.may_subscribe(ANYONE, "#") and access.may_read(ALICE, "a")
    )


def test_a_right_password_is_accepted_and_a_wrong_one_refused(load: Load) -> None:
    access = load()
    assert access.verify("alice", b"secret")
    assert access.verify("bob", b"other")
    assert not access.verify("alice", b"other")
    assert not access.verify("alice", b"secret\0")
    assert not access.verify("Alice", b"secret")
    assert not access.verify("carol", b"secret")


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("alice", None),
        ("alice", b""),
        ("carol", None),
        ("", b"secret"),
        ("alice\0", b"secret"),
        ("*", b"secret"),
    ],
)
def test_impossible_credentials_are_refused(load: Load, user: str, password: bytes | None) -> None:
    access = load(allow_anonymous=True)
    assert not access.verify_now(user, password)
    assert not access.verify(user, password)


def test_a_name_without_a_password_needs_no_slow_check(load: Load, verifications: Verifications) -> None:
    access = load()
    assert access.verify_now("alice", b"") is False
    assert access.verify_now("alice\0x", b"secret") is False
    assert not access.verify("alice", None)
    assert verifications.mismatches == 0


@pytest.mark.parametrize("allowed", [True, False])
def test_the_anonymous_come_in_only_where_allowed(load: Load, allowed: bool) -> None:
    access = load(allow_anonymous=allowed)
    assert access.verify_now(None, None) is allowed
    assert access.verify(None, None) is allowed


def test_without_a_password_file_a_name_makes_no_difference(load: Load) -> None:
    access = load(users=None, acl="anonymous\npublish open/#\n", allow_anonymous=True)
    assert access.verify_now("alice", b"whatever") is True
    assert access.may_publish(ALICE, "open/a")
    assert not access.may_publish(ALICE, "closed/a")
    assert load(users=None, allow_anonymous=False).verify("alice", b"whatever") is False


def test_an_unknown_user_costs_a_verification_like_a_known_one(
    load: Load, verifications: Verifications
) -> None:
    access = load()
    assert not access.verify("alice", b"wrong")
    assert (verifications.mismatches, verifications.successes) == (1, 0)
    assert not access.verify("nobody", b"wrong")
    assert (verifications.mismatches, verifications.successes) == (2, 0)
    assert not access.verify("nobody", b"secret")  # the password of another
    assert (verifications.mismatches, verifications.successes) == (3, 0)


def test_an_unknown_user_costs_as_much_as_the_users_of_the_file(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[str] = []
    verify = PasswordHasher.verify

    def noting(self: PasswordHasher, hash: str, password: bytes) -> bool:
        costs.append(hash.rsplit("$", 2)[0])
        return verify(self, hash, password)

    monkeypatch.setattr(PasswordHasher, "verify", noting)
    access = load()
    access.verify("alice", b"wrong")
    access.verify("nobody", b"wrong")
    assert costs == ["$argon2id$v=19$m=8,t=1,p=1"] * 2


def test_nobody_comes_in_with_an_empty_password_file(load: Load, verifications: Verifications) -> None:
    access = load(users="# nobody yet\n")
    assert not access.verify("alice", b"secret")
    assert verifications.mismatches == 1


def test_a_made_hash_is_good_for_its_password_only() -> None:
    stored = hash_password(b"secret")
    assert stored.startswith("$argon2id$")
    assert is_password(b"secret", stored)
    assert not is_password(b"Secret", stored)
    assert not is_password(b"secret", "$argon2id$v=19$m=8,t=1,p=1$c2FsdA$broken")


def test_argon2_is_loaded_only_where_passwords_are_checked(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(USERS)
    program = (
        "import sys; from pathlib import Path; from penstock.core.access import FileAccess\n"
        "access = FileAccess.load(Path(sys.argv[1]), None, False)\n"
        "before = 'argon2' in sys.modules; access.verify('alice', b'secret')\n"
        "print(before, 'argon2' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program, users], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


# Being remembered


def test_a_verified_user_is_accepted_at_once_for_some_minutes(
    load: Load, verifications: Verifications
) -> None:
    clock = MovableClock()
    access = load(monotonic=clock)
    assert access.verify_now("alice", b"secret") is None
    assert access.verify("alice", b"secret")
    clock.now += REMEMBERED_S - 1
    assert access.verify_now("alice", b"secret") is True
    assert access.verify("alice", b"secret")
    assert verifications.successes == 1
    clock.now += 1
    assert access.verify_now("alice", b"secret") is None


def test_being_remembered_helps_no_other_password_and_no_other_user(load: Load) -> None:
    access = load(users=f"alice:{SECRET}\nbob:{SECRET}\n")
    assert access.verify("alice", b"secret")
    assert access.verify_now("alice", b"secre") is None
    assert access.verify_now("bob", b"secret") is None
    assert not access.verify("alice", b"secre")


def test_a_wrong_password_is_not_remembered(load: Load) -> None:
    access = load()
    assert not access.verify("alice", b"wrong")
    assert not access.verify("carol", b"wrong")
    assert access.verify_now("alice", b"wrong") is None
    assert access.verify_now("carol", b"wrong") is None


def test_clients_that_come_back_at_once_share_few_verifications(
    load: Load, verifications: Verifications
) -> None:
    slower = PasswordHasher(time_cost=1, memory_cost=16 * 1024, parallelism=1)
    access = load(users=f"alice:{slower.hash('secret')}\n")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: access.verify("alice", b"secret"), range(200)))
    assert answers == [True] * 200
    assert 1 <= verifications.successes <= SLOW_CHECKS_AT_ONCE


def test_the_user_verified_longest_ago_is_forgotten_when_there_are_too_many() -> None:
    remembered = RememberedPasswords(MovableClock(), limit=2)
    for user in ("alice", "bob", "alice", "carol"):
        remembered.add(user, SECRET, b"secret")
    assert remembered.has("alice", SECRET, b"secret")
    assert remembered.has("carol", SECRET, b"secret")
    assert not remembered.has("bob", SECRET, b"secret")
    remembered.add("carol", SECRET, b"secret")  # again, which takes no room from others
    assert remembered.has("alice", SECRET, b"secret")


def test_what_is_remembered_does_not_hold_the_password() -> None:
    remembered = RememberedPasswords(MovableClock())
    remembered.add("alice", SECRET, b"open-sesame")
    assert "open-sesame" not in repr(vars(remembered))


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


# The files


def test_sections_of_one_user_add_up(load: Load) -> None:
    access = load(acl="user alice\npublish a\nuser bob\npublish b\nuser alice\npublish c\n")
    assert access.may_publish(ALICE, "a") and access.may_publish(ALICE, "c")
    assert not access.may_publish(ALICE, "b")


def test_comments_blank_lines_and_foreign_line_ends_do_not_matter(load: Load) -> None:
    access = load(
        users=f"\ufeff# users\r\n\r\n  alice:{SECRET}  \r\n",
        acl="\ufeff\r\n  # list\r\nuser alice # her\r\n\tsubscribe\t# # everything\r\n"
        "anonymous\r\npublish x #note\r\n",
        allow_anonymous=True,
    )
    assert access.verify("alice", b"secret")
    assert access.may_subscribe(ALICE, "#")
    assert access.may_publish(ANYONE, "x")


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
    ],
)
def test_a_wrong_line_of_the_access_list_is_named(load: Load, text: str, line: int) -> None:
    with pytest.raises(InvalidConfig, match=f"acl:{line}: "):
        load(acl=text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("alice\n", 1),
        ("alice:secret\n", 1),
        (f"# one\n\n:{SECRET}\n", 3),
        (f"alice:{SECRET}\nalice:{OTHER}\n", 2),
        (f"*:{SECRET}\n", 1),
        (f"alice :{SECRET}\n", 1),
        (f"al\tice:{SECRET}\n", 1),
        (f"alice:{SECRET}:x\n", 1),
        (f"alice:{SECRET[:-30]}\n", 1),
        ("alice:" + SECRET.replace("argon2id", "argon2i") + "\n", 1),
    ],
)
def test_a_wrong_line_of_the_password_file_is_named(load: Load, text: str, line: int) -> None:
    with pytest.raises(InvalidConfig, match=f"users:{line}: "):
        load(users=text)


def test_a_complaint_about_a_password_file_does_not_show_what_stands_there(load: Load) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(users="alice:hunter2\n")
    assert "hunter2" not in str(caught.value)


def test_rules_for_users_without_a_password_file_are_an_error(load: Load) -> None:
    with pytest.raises(InvalidConfig, match=r"acl:3: .*password file"):
        load(users=None, acl="anonymous\npublish a\nuser alice\npublish b\n")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="missing: cannot be read"):
        FileAccess.load(tmp_path / "missing", None, False)


def test_a_line_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "acl").write_bytes(b"anonymous\npublish a\npublish \xff\n")
    with pytest.raises(InvalidConfig, match="acl:3: "):
        FileAccess.load(None, tmp_path / "acl", True)


@pytest.mark.timeout(20)
def test_large_files_are_read_in_linear_time(load: Load) -> None:
    many = 20_000
    rules = "".join(f"user user-{number}\npublish own/{number}\n" for number in range(many))
    access = load(
        users="".join(f"user-{number}:{SECRET}\n" for number in range(many)),
        acl=f"{rules}user *\npublish a{' ' * 60_000}b\n",
    )
    assert access.may_publish(Identity("user-19999", "c"), "own/19999")
    assert not access.may_publish(Identity("user-19999", "c"), "own/19998")


@pytest.mark.parametrize("name", ["alice", "Zoë", "a.b@c.org", "pump 7", "a+b", "%u"])
def test_ordinary_user_names_are_accepted(name: str) -> None:
    assert is_user_name(name)


@pytest.mark.parametrize("name", ["", "*", " a", "a ", "a:b", "#a", "a #b", "a\0", "a\nb", "\ufeffa"])
def test_names_that_a_file_could_not_hold_are_refused(name: str) -> None:
    assert not is_user_name(name)


# Reading them again


def test_reloading_takes_new_users_and_rules(load: Load, tmp_path: Path) -> None:
    access = load(acl="user alice\npublish a\n")
    (tmp_path / "users").write_text(f"carol:{SECRET}\n")
    (tmp_path / "acl").write_text("user carol\npublish c\n")
    access.reload()
    assert access.verify("carol", b"secret") and not access.verify("alice", b"secret")
    assert access.may_publish(Identity("carol", "c"), "c")
    assert not access.may_publish(ALICE, "a")


@pytest.mark.parametrize("broken", ["users", "acl"])
def test_a_failed_reload_keeps_everything_as_it_was(load: Load, tmp_path: Path, broken: str) -> None:
    access = load(acl="user alice\npublish a\n")
    (tmp_path / "users").write_text(f"carol:{SECRET}\n")
    (tmp_path / "acl").write_text("user carol\npublish c\n")
    with (tmp_path / broken).open("a") as file:
        file.write("nonsense\n")
    with pytest.raises(InvalidConfig, match=rf"{broken}:\d+: "):
        access.reload()
    assert access.verify("alice", b"secret") and not access.verify("carol", b"secret")
    assert access.may_publish(ALICE, "a")


def test_reloading_forgets_only_users_whose_line_changed(load: Load, tmp_path: Path) -> None:
    access = load(users=f"alice:{SECRET}\nbob:{OTHER}\ncarol:{SECRET}\n")
    assert (
        access.verify("alice", b"secret")
        and access.verify("bob", b"other")
        and access.verify("carol", b"secret")
    )
    (tmp_path / "users").write_text(f"alice:{CHEAP.hash('new')}\nbob:{OTHER}\n")
    access.reload()
    assert access.verify_now("bob", b"other") is True
    assert access.verify_now("alice", b"secret") is None and not access.verify("alice", b"secret")
    assert access.verify_now("carol", b"secret") is None and not access.verify("carol", b"secret")


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


@settings(max_examples=300, deadline=None)
@given(acls, identities, topics)
def test_rights_agree_with_the_naive_model(folder: Path, acl: Acl, identity: Identity, topic: str) -> None:
    access = load_acl(folder, acl)
    assert access.may_publish(identity, topic) == naive_may(acl, identity, "publish", topic)
    assert access.may_read(identity, topic) == naive_may(acl, identity, "subscribe", topic)


@settings(max_examples=300, deadline=None)
@given(acls, identities, plain_filters, st.lists(topics, min_size=5, max_size=20))
def test_no_message_reaches_a_subscriber_who_may_not_read_it(
    folder: Path, acl: Acl, identity: Identity, filter: str, some_topics: list[str]
) -> None:
    access = load_acl(folder, acl)
    if access.may_subscribe(identity, filter):
        for topic in some_topics:
            assert not matches(filter, topic) or naive_may(acl, identity, "subscribe", topic)
