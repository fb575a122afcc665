"""The password file, and who is remembered; argon2 is real and at its cheapest."""

from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.common.scram import FEWEST_ITERATIONS, MOST_ITERATIONS, ScramKeys, make_keys
from penstock.core.access.passwords import (
    Credentials,
    RememberedPasswords,
    decode_keys,
    encode_keys,
    hash_password,
    is_password,
    read_passwords,
)
from penstock.errors import InvalidConfig

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SALT = b"salt of 16 bytes"  # so that tests keep their names
SECRET = CHEAP.hash("secret", salt=SALT)
OTHER = CHEAP.hash("other", salt=SALT)
KEYS = make_keys("secret", FEWEST_ITERATIONS, SALT)
FIELD = encode_keys(KEYS)


class Still:
    """A clock that stands."""

    def __call__(self) -> float:
        return 1000.0


def read(folder: Path, text: str) -> dict[str, Credentials]:
    (folder / "users").write_text(text, encoding="utf-8", newline="")
    return read_passwords(folder / "users")


# Hashes


def test_a_made_hash_is_good_for_its_password_only() -> None:
    stored = hash_password(b"secret")
    assert stored.startswith("$argon2id$")
    assert is_password(b"secret", stored)
    assert not is_password(b"Secret", stored)
    assert not is_password(b"secret", "$argon2id$v=19$m=8,t=1,p=1$c2FsdA$broken")


# Being remembered


def test_the_user_verified_longest_ago_is_forgotten_when_there_are_too_many() -> None:
    remembered = RememberedPasswords(Still(), limit=2)
    for user in ("alice", "bob", "alice", "carol"):
        remembered.add(user, SECRET, b"secret")
    assert remembered.has("alice", SECRET, b"secret")
    assert remembered.has("carol", SECRET, b"secret")
    assert not remembered.has("bob", SECRET, b"secret")
    remembered.add("carol", SECRET, b"secret")  # again, which takes no room from others
    assert remembered.has("alice", SECRET, b"secret")


def test_what_is_remembered_does_not_hold_the_password() -> None:
    remembered = RememberedPasswords(Still())
    remembered.add("alice", SECRET, b"open-sesame")
    assert "open-sesame" not in repr(vars(remembered))


# The file


def test_a_line_has_a_hash_and_may_have_keys(tmp_path: Path) -> None:
    lines = read(tmp_path, f"alice:{SECRET}:{FIELD}\r\n# old\n bob:{OTHER} \n")
    assert lines == {"alice": Credentials(SECRET, KEYS), "bob": Credentials(OTHER, None)}


def test_keys_are_written_as_others_can_read_them() -> None:
    keys = ScramKeys(4096, b"0123456789abcdef", bytes(32), b"\xff" * 32)
    salt, stored, server = "MDEyMzQ1Njc4OWFiY2RlZg==", "A" * 43 + "=", "/" * 42 + "8="
    assert encode_keys(keys) == f"$scram-sha-256$i=4096,s={salt}${stored}${server}"
    assert decode_keys(encode_keys(keys)) == keys


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
        (f"alice:{SECRET}:\n", 1),
        (f"alice:{FIELD}\n", 1),
        (f"alice:{SECRET}:{FIELD}:\n", 1),
        (f"alice:{SECRET}:{FIELD}\nalice:{SECRET}\n", 2),
        ("alice:" + SECRET.replace("argon2id", "argon2i") + "\n", 1),
    ],
)
def test_a_wrong_line_of_the_password_file_is_named(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(InvalidConfig, match=f"users:{line}: "):
        read(tmp_path, text)


def test_a_complaint_about_a_password_file_does_not_show_what_stands_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(tmp_path, "alice:hunter2\n")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "field",
    [
        "$scram-sha-256$",
        FIELD.replace("256", "1"),
        FIELD.replace("i=4096", f"i={FEWEST_ITERATIONS - 1}"),
        FIELD.replace("i=4096", f"i={MOST_ITERATIONS + 1}"),
        FIELD.replace("i=4096", "i=04096"),
        FIELD.replace("i=4096", "i=4 096"),
        FIELD.replace(",s=", ",s=="),
        FIELD.replace(",s=", ",s=AAAA===="),
        FIELD.replace("==$", "AA==$"),
        FIELD.replace("i=4096", "i=\u0664\u0660\u0669\u0666"),
        encode_keys(ScramKeys(4096, b"1234567", KEYS.stored_key, KEYS.server_key)),
        encode_keys(ScramKeys(4096, b"1" * 65, KEYS.stored_key, KEYS.server_key)),
        encode_keys(ScramKeys(4096, KEYS.salt, KEYS.stored_key[1:], KEYS.server_key)),
        encode_keys(ScramKeys(4096, KEYS.salt, KEYS.stored_key, KEYS.server_key + b"1")),
        FIELD.replace("$i=", "$i=\u00e9"),
        FIELD.replace(",s=", ",s=\u00e9"),
        FIELD[:-1],
        FIELD[:-5],
        f"{FIELD}AAAA",
        FIELD.rpartition("$")[0],
    ],
)
def test_keys_that_are_none_are_named_and_not_shown(tmp_path: Path, field: str) -> None:
    with pytest.raises(InvalidConfig, match=r"users:1: .*SCRAM-SHA-256") as caught:
        read(tmp_path, f"alice:{SECRET}:{field}\n")
    assert FIELD[-20:-5] not in str(caught.value)


@pytest.mark.parametrize("name", ["Zoe\u0308", "\u2168", "a\u06271", "x" * 513])
def test_a_name_that_scram_would_not_carry_has_no_keys(tmp_path: Path, name: str) -> None:
    assert list(read(tmp_path, f"{name}:{SECRET}\n")) == [name]
    with pytest.raises(InvalidConfig, match=r"users:1: .*cannot be a name for SCRAM"):
        read(tmp_path, f"{name}:{SECRET}:{FIELD}\n")
