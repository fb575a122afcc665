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

from penstock.common.scram import FEWEST_ITERATIONS, ScramClient, make_keys
from penstock.core.access.access import SLOW_CHECKS_AT_ONCE, Access, Exchange, OpenAccess
from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.core.access.passwords import REMEMBERED_S, encode_keys
from penstock.errors import BadCredentials, InvalidConfig

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SALT = b"salt of 16 bytes"  # so that tests keep their names
SECRET = CHEAP.hash("secret", salt=SALT)
OTHER = CHEAP.hash("other", salt=SALT)
USERS = f"alice:{SECRET}\nbob:{OTHER}\n"
KEYS = encode_keys(make_keys("secret", FEWEST_ITERATIONS, SALT))
OTHER_KEYS = encode_keys(make_keys("other", FEWEST_ITERATIONS, SALT))
SCRAM_USERS = f"alice:{SECRET}:{KEYS}\nbob:{OTHER}\n"

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
        has_certificates: bool = False,
    ) -> FileAccess:
        return FileAccess.load(
            write("users", users), write("acl", acl), allow_anonymous, monotonic, has_certificates
        )

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


def test_argon2_is_loaded_only_where_passwords_are_checked(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(USERS)
    program = (
        "import sys; from pathlib import Path; from penstock.core.access.file_access import FileAccess\n"
        "access = FileAccess.load(Path(sys.argv[1]), None, False)\n"
        "before = 'argon2' in sys.modules; access.verify('alice', b'secret')\n"
        "print(before, 'argon2' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program, users], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("password", [b"secret", b"wrong"])
def test_a_name_in_another_normal_form_is_another_name(load: Load, password: bytes) -> None:
    access = load(users=f"Zo\u00eb:{SECRET}\n")
    assert access.verify("Zo\u00eb", b"secret")
    assert not access.verify("Zoe\u0308", password)


def test_a_password_that_is_replaced_while_it_is_checked_lets_nobody_in(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = load()
    verify = PasswordHasher.verify

    def slowly(self: PasswordHasher, hash: str, password: bytes) -> bool:
        (tmp_path / "users").write_text(f"alice:{OTHER}\n")
        access.reload()
        return verify(self, hash, password)

    monkeypatch.setattr(PasswordHasher, "verify", slowly)
    assert not access.verify("alice", b"secret")
    assert access.verify("alice", b"other")


# Proving it


def begin(access: Access) -> Exchange:
    exchange = access.exchange("SCRAM-SHA-256")
    assert exchange is not None
    return exchange


def prove(access: Access, user: str, password: str) -> str | None:
    """Who comes in with a right proof; one that is wrong raises."""
    exchange, client = begin(access), ScramClient(user, password)
    client.check(exchange.respond(client.prove(exchange.respond(client.begin()))))
    assert exchange.is_done
    return exchange.user


def test_who_has_keys_can_prove_a_password_or_send_it(load: Load) -> None:
    access = load(users=SCRAM_USERS)
    assert begin(access).method == "SCRAM-SHA-256"
    assert prove(access, "alice", "secret") == "alice"
    assert access.verify("alice", b"secret") and access.verify("bob", b"other")


@pytest.mark.parametrize(("user", "password"), [("alice", "other"), ("bob", "other"), ("carol", "secret")])
def test_who_has_no_keys_fails_like_one_with_a_wrong_password(load: Load, user: str, password: str) -> None:
    with pytest.raises(BadCredentials, match=r"^a wrong password, or no such user$"):
        prove(load(users=SCRAM_USERS), user, password)


def test_a_stranger_cannot_tell_who_has_keys(load: Load) -> None:
    access = load(users=SCRAM_USERS)
    asked: dict[str, list[str]] = {"alice": [], "bob": [], "carol": []}
    for user, salts in asked.items():
        for _ in range(2):
            nonce, salt, iterations = begin(access).respond(f"n,,n={user},r=x".encode()).decode().split(",")
            assert nonce.startswith("r=x")
            assert len(salt) == len("s=") + 24
            assert iterations == f"i={FEWEST_ITERATIONS}"
            salts.append(salt)
        access.reload()  # which changes no salt
        begin(access).respond(f"n,,n={user},r=x".encode()).decode().index(salts[0])
    assert all(first == second for first, second in asked.values())
    assert len({first for first, _ in asked.values()}) == 3


def test_a_stranger_cannot_compute_what_a_server_says_about_nobody(load: Load) -> None:
    asked = {begin(load(users=SCRAM_USERS)).respond(b"n,,n=carol,r=x").split(b",")[1] for _ in range(2)}
    assert len(asked) == 2


@pytest.mark.parametrize("method", ["", "scram-sha-256", "SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "PLAIN"])
def test_there_is_one_method_and_it_has_one_name(load: Load, method: str) -> None:
    assert load(users=SCRAM_USERS).exchange(method) is None


def test_without_passwords_there_is_nothing_to_prove(load: Load) -> None:
    assert OpenAccess().exchange("SCRAM-SHA-256") is None
    assert load(users=None, allow_anonymous=True).exchange("SCRAM-SHA-256") is None


@pytest.mark.parametrize("line", ["", f"alice:{SECRET}\n", f"alice:{SECRET}:{OTHER_KEYS}\n"])
def test_who_loses_the_keys_during_an_exchange_does_not_come_in(
    load: Load, tmp_path: Path, line: str
) -> None:
    access = load(users=SCRAM_USERS)
    exchange, client = begin(access), ScramClient("alice", "secret")
    proof = client.prove(exchange.respond(client.begin()))
    (tmp_path / "users").write_text(line)
    access.reload()
    with pytest.raises(BadCredentials):
        exchange.respond(proof)


# Being named by a certificate


def test_who_has_a_certificate_needs_no_line_but_has_rights_of_a_user(load: Load) -> None:
    acl = "user alice\npublish a\nuser *\npublish own/%u\nanonymous\npublish open\n"
    for users in (None, USERS):
        access = load(users=users, acl=acl, allow_anonymous=True, has_certificates=True)
        carol = Identity("carol", "c")
        assert access.may_publish(ALICE, "a") and access.may_publish(carol, "own/carol")
        assert not access.may_publish(carol, "a") and not access.may_publish(carol, "open")
        assert access.may_publish(ANYONE, "open")


def test_nobody_is_taken_for_the_owner_of_a_certificate(load: Load) -> None:
    access = load(users=None, acl="user *\npublish own/%u\n", allow_anonymous=True, has_certificates=True)
    for password in (None, b"", b"secret"):
        assert access.verify_now("alice", password) is False
        assert access.verify("alice", password) is False
    assert access.verify_now(None, None) is True


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


# The files


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


def test_a_user_is_known_as_long_as_there_is_a_line(load: Load, tmp_path: Path) -> None:
    access = load()
    assert access.is_known(ALICE) and access.is_known(BOB)
    assert not access.is_known(Identity("carol", "c"))
    (tmp_path / "users").write_text(f"bob:{OTHER}\n")
    for _ in range(2):
        access.reload()
        assert access.is_known(BOB) and not access.is_known(ALICE)


@pytest.mark.parametrize("users", [USERS, None])
@pytest.mark.parametrize("allowed", [True, False])
def test_the_anonymous_are_known_where_they_are_allowed(load: Load, users: str | None, allowed: bool) -> None:
    access = load(users=users, allow_anonymous=allowed)
    assert access.is_known(ANYONE) is allowed
    if users is None:
        assert access.is_known(ALICE) is allowed  # a name that proves nothing


def test_the_owner_of_a_certificate_needs_no_line(load: Load, tmp_path: Path) -> None:
    access = load(has_certificates=True)
    carol, alice = Identity("carol", "c", is_certified=True), Identity("alice", "a", is_certified=True)
    (tmp_path / "users").write_text(f"bob:{OTHER}\n")
    access.reload()
    assert access.is_known(carol) and access.is_known(alice) and access.is_known(BOB)
    assert not access.is_known(ALICE)  # who came with the password that is gone
    assert not access.is_outdated(alice)
    assert not load().is_known(carol)


@pytest.mark.parametrize(
    "line",
    [f"alice:{CHEAP.hash('secret', salt=SALT[::-1])}", f"alice:{SECRET}", f"alice:{SECRET}:{OTHER_KEYS}"],
)
def test_a_reload_makes_only_users_with_another_line_outdated(load: Load, tmp_path: Path, line: str) -> None:
    access = load(users=f"alice:{SECRET}:{KEYS}\nbob:{OTHER}\ncarol:{SECRET}\n", allow_anonymous=True)
    (tmp_path / "users").write_text(f"# moved\nbob:{OTHER}\n{line}\ndave:{SECRET}\n")
    assert not access.is_outdated(ALICE)
    access.reload()
    assert access.is_outdated(ALICE) and access.is_known(ALICE)
    for identity in (BOB, Identity("carol", "c"), Identity("dave", "d"), ANYONE):
        assert not access.is_outdated(identity)
    access.reload()
    assert not access.is_outdated(ALICE)


def test_a_failed_reload_makes_nobody_unknown_or_outdated(load: Load, tmp_path: Path) -> None:
    access = load()
    (tmp_path / "users").write_text(f"bob:{SECRET}\nnonsense\n")
    with pytest.raises(InvalidConfig):
        access.reload()
    assert access.is_known(ALICE)
    assert not access.is_outdated(BOB)


def test_open_access_knows_everyone() -> None:
    for identity in (ALICE, ANYONE):
        assert OpenAccess().is_known(identity)
        assert not OpenAccess().is_outdated(identity)


def test_rights_in_general_are_those_of_the_rules(load: Load) -> None:
    rules = "user alice\npublish a\nuser bob\nsubscribe b/+/x\nsubscribe $SYS/#\n"
    access = load(acl=rules)
    found = [(access.rights_of(who).publish, access.rights_of(who).subscribe) for who in (ALICE, BOB, ANYONE)]
    assert found == [(True, False), (False, True), (False, False)]
    assert access.has_passwords
    below = [
        access.may_read_below(BOB, level) for level in ("b", "b/1", "b/1/x", "b/1/y", "a", "$SYS/broker")
    ]
    assert below == [True, True, True, False, False, True]
    assert not access.may_read_below(ALICE, "b")


def test_without_rules_everyone_may_do_everything(load: Load) -> None:
    for access in (load(users=None, allow_anonymous=True), load(), OpenAccess()):
        rights = access.rights_of(ANYONE)
        assert (rights.publish, rights.subscribe, access.may_read_below(ANYONE, "$SYS")) == (True, True, True)
    assert not load(users=None).has_passwords
    assert not OpenAccess().has_passwords
