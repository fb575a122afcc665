"""Password files and access lists after an accident: understood, or refused with file and line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from penstock.common.scram import FEWEST_ITERATIONS, make_keys
from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.core.access.passwords import encode_keys
from penstock.errors import InvalidConfig
from tests.fuzz.damage import damaged, damaged_text
from tests.fuzz.verdict import judge

STORED = "$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
KEYS = encode_keys(make_keys("secret", FEWEST_ITERATIONS))
PASSWORDS = f"# users\nalice:{STORED}\nbob:{STORED}:{KEYS}\n\ncarol:{STORED}\n"
ACL = """# who may do what
user alice
publish   sensors/%c/#
subscribe sensors/+/temperature
both      chat/#

user *            # every user
both      home/%u/#

anonymous         # guests
subscribe public/#
"""
TOKENS = (
    *("user ", "user", "*", "anonymous", "publish ", "subscribe ", "both ", "#", " #", "+", "/", "%u"),
    *("%c", "\n", "\r", "\r\n", "\t", "\0", "\ufeff", "\u2028", "\x85", "\x1c", "$", "$share/g/", ":", "é"),
    *(
        "%",
        "\\",
        "user alice\n",
        "$argon2id$",
        "$scram-sha-256$",
        ",s=",
        "=",
        "x" * 70_000,
        "a/" * 70_000,
        " " * 3_000,
    ),
)
IDENTITIES = [
    Identity(user, client) for user in ("alice", "*", "", None) for client in ("c", "#", "", "$SYS")
]


@contextmanager
def complaints_name(file: Path) -> Iterator[None]:
    """Whoever has to mend a file wants to know where."""
    try:
        yield
    except InvalidConfig as error:
        assert re.match(rf"{re.escape(str(file))}:\d+: ", str(error)), error
        raise


def test_password_files_are_understood_or_refused(dice: Random, many: int, tmp_path: Path) -> None:
    file = tmp_path / "passwords"

    def make(dice: Random) -> bytes:
        text = damaged_text(PASSWORDS, dice, TOKENS).encode(errors="surrogatepass")
        return damaged(text, dice) if dice.random() < 0.3 else text

    def parse(data: bytes) -> None:
        file.write_bytes(data)
        with complaints_name(file):
            access = FileAccess.load(file, None, False)
        assert access.verify_now(None, None) is False
        for name in ("", "alice", "\0", "#", "alice:"):
            assert access.verify_now(name, b"x") is not True

    tally = judge(parse, make, dice, many // 8, steps_per_unit=20, error=InvalidConfig)
    assert tally.taken > many // 800 and tally.refused > many // 80


def test_access_lists_are_understood_or_refused(dice: Random, many: int, tmp_path: Path) -> None:
    passwords, file = tmp_path / "passwords", tmp_path / "acl"
    passwords.write_text(PASSWORDS, encoding="utf-8")

    def make(dice: Random) -> bytes:
        text = damaged_text(ACL, dice, TOKENS).encode(errors="surrogatepass")
        return damaged(text, dice) if dice.random() < 0.3 else text

    def parse(data: bytes) -> None:
        file.write_bytes(data)
        with complaints_name(file):
            access = FileAccess.load(passwords, file, True)
        for identity in IDENTITIES:
            for topic in ("home/alice/x", "$SYS", "$share/g/a"):
                may = access.may_subscribe(identity, topic)
                assert may == access.may_read(identity, topic)
                access.may_publish(identity, topic)

    tally = judge(parse, make, dice, many // 8, steps_per_unit=60, error=InvalidConfig)
    assert tally.taken > many // 800 and tally.refused > many // 80


@pytest.mark.parametrize("name", ["nobody", ".", "a\0b", "x" * 5_000, "\ud800"], ids=ascii)
def test_files_that_cannot_be_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        FileAccess.load(tmp_path / name, None, False)
    with pytest.raises(InvalidConfig):
        FileAccess.load(None, tmp_path / name, False)


def test_a_list_that_cannot_be_read_again_leaves_everything_as_it_was(
    dice: Random, scale: int, tmp_path: Path
) -> None:
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    passwords.write_text(PASSWORDS, encoding="utf-8")
    acl.write_text("user alice\nsubscribe a\n", encoding="utf-8")
    access = FileAccess.load(passwords, acl, False)
    alice = Identity("alice", "c")

    def parse(text: str) -> None:
        acl.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        try:
            access.reload()
        except InvalidConfig:
            assert access.may_subscribe(alice, "a")
            assert not access.may_subscribe(alice, "b")
            raise
        acl.write_text("user alice\nsubscribe a\n", encoding="utf-8")
        access.reload()

    tally = judge(parse, lambda dice: damaged_text(ACL, dice, TOKENS), dice, 1_000 * scale, steps_per_unit=60)
    assert tally.taken and tally.refused
