"""Password file: format, argon2id check, and the cache of recently verified passwords.

A line has a name and an argon2id hash. An optional third field holds SCRAM keys, for users that prove their
password without sending it. Neither field reveals the password.
"""

import hmac
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from threading import Lock

from msgspec import Struct

from penstock.common.scram import (
    FEWEST_ITERATIONS,
    KEY_BYTES,
    MAX_NAME_BYTES,
    MOST_ITERATIONS,
    ScramKeys,
    prepare,
)
from penstock.core.access.files import Line, read_lines
from penstock.core.access.identity import is_user_name
from penstock.core.runtime.bounded_map import BoundedMap

REMEMBERED_S = 300.0
"""Time for which a verified password need not be verified again."""
REMEMBERED_USERS = 100_000

_HASH = re.compile(r"\$argon2id\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{22,}", re.ASCII)
SCRAM_PREFIX = "$scram-sha-256$"
SALT_SIZES = range(8, 65)
_SCRAM = re.compile(r"\$scram-sha-256\$i=([0-9]{1,9}),s=([^$]+)\$([^$]+)\$([^$]+)", re.ASCII)
_USUAL_COST = "$argon2id$v=19$m=65536,t=3,p=4"
_NO_SECRET = f"${'A' * 22}${'A' * 43}"  # salt and digest that no password has


class Credentials(Struct, frozen=True):
    """Credentials of one line of the password file."""

    hash: str
    scram: ScramKeys | None = None


class RememberedPasswords:
    """Cache of recently verified users: one entry per user, the oldest is dropped first.

    A digest also covers the stored hash, so it is void once the user's line changed.
    """

    def __init__(self, monotonic: Callable[[], float], limit: int = REMEMBERED_USERS) -> None:
        self._monotonic = monotonic
        self._key = os.urandom(blake2b.MAX_KEY_SIZE)
        self._digests: BoundedMap[str, bytes] = BoundedMap(limit)
        self._lock = Lock()  # verifications end in several threads at once

    def add(self, user: str, stored: str, password: bytes) -> None:
        """Remember that this password belongs to this stored hash."""
        digest, now = self._digest(stored, password), self._monotonic()
        with self._lock:
            self._digests.put(user, digest, now + REMEMBERED_S)
            self._digests.take_stale(now)

    def has(self, user: str, stored: str, password: bytes) -> bool:
        """Return whether this password was recently verified for the user's present hash."""
        digest = self._digests.find(user, self._monotonic())
        return digest is not None and hmac.compare_digest(digest, self._digest(stored, password))

    def _digest(self, stored: str, password: bytes) -> bytes:
        return blake2b(b"%s\0%s" % (stored.encode(), password), key=self._key, digest_size=32).digest()


def hash_password(password: bytes) -> str:
    """Make what the password file holds instead of a password."""
    from argon2 import PasswordHasher  # noqa: PLC0415 - slow import, only for servers with passwords

    return PasswordHasher().hash(password)


def is_password(password: bytes, stored: str) -> bool:
    """Return whether a hash belongs to a password."""
    from argon2 import PasswordHasher  # noqa: PLC0415 - slow import, only for servers with passwords
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415

    try:
        return PasswordHasher().verify(stored, password)
    except (InvalidHashError, VerificationError):
        return False


def decoys_like(users: Iterable[Credentials]) -> tuple[str, ...]:
    """Return decoy hashes that cost as much to check as those of real users."""
    costs = {credentials.hash.rsplit("$", 2)[0] for credentials in users} or {_USUAL_COST}
    return tuple(cost + _NO_SECRET for cost in sorted(costs))


# The file


def read_passwords(file: Path) -> dict[str, Credentials]:
    """Read lines of `name:$argon2id$...`, with or without `:$scram-sha-256$...` behind it."""
    passwords: dict[str, Credentials] = {}
    for line in read_lines(file):
        name, _, fields = line.text.partition(":")
        hash, has_scram, scram = fields.partition(":")
        if not is_user_name(name):
            raise line.error("a line is a user name, a colon and an argon2id hash")
        if not _HASH.fullmatch(hash):
            raise line.error(f"what follows {name!r} is no argon2id hash: make one with `penstock passwd`")
        if name in passwords:
            raise line.error(f"{name!r} has a line already")
        passwords[name] = Credentials(hash, _read_keys(line, name, scram) if has_scram else None)
    return passwords


def encode_keys(keys: ScramKeys) -> str:
    """Write keys as the third field of a line."""
    salt, stored_key, server_key = (
        b64encode(part).decode() for part in (keys.salt, keys.stored_key, keys.server_key)
    )
    return f"{SCRAM_PREFIX}i={keys.iterations},s={salt}${stored_key}${server_key}"


def decode_keys(text: str) -> ScramKeys:
    """Read the third field of a line.

    Raises:
        ValueError: it is not what `encode_keys` writes.
    """
    found = _SCRAM.fullmatch(text)
    if found is None:
        raise ValueError("no keys of SCRAM-SHA-256")
    salt, stored_key, server_key = (b64decode(part) for part in found.groups()[1:])
    keys = ScramKeys(int(found[1]), salt, stored_key, server_key)
    if encode_keys(keys) != text or not _is_sound(keys):
        raise ValueError("no sound keys of SCRAM-SHA-256")
    return keys


def _is_sound(keys: ScramKeys) -> bool:
    return (
        FEWEST_ITERATIONS <= keys.iterations <= MOST_ITERATIONS
        and len(keys.salt) in SALT_SIZES
        and len(keys.stored_key) == len(keys.server_key) == KEY_BYTES
    )


def check_scram_name(name: str) -> None:
    """Validate a user name for SCRAM, which has to carry it unchanged.

    Raises:
        ValueError: it is too long, or its prepared form differs; the text names it.
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"it has more than {MAX_NAME_BYTES} bytes")
    prepared = prepare(name, is_stored=True)
    if prepared != name:
        raise ValueError(f"it has to be written as {prepared!r}")


def _read_keys(line: Line, name: str, text: str) -> ScramKeys:
    try:
        check_scram_name(name)
    except ValueError as error:
        raise line.error(f"{name!r} cannot be a name for SCRAM: {error}") from None
    try:
        return decode_keys(text)
    except ValueError:
        raise line.error(f"what follows the hash of {name!r} are no keys of SCRAM-SHA-256") from None
