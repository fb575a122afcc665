"""Who may come in and what they may do, the same at every door.

`OpenAccess` lets everyone do everything. `FileAccess` reads a password file and an access list, and once
there is a list, nothing is allowed that none of its rules allows. That clients may not publish to `$`
topics is no matter of rights: core refuses that by itself.

Passwords are checked with argon2, which is slow on purpose. So a door asks `verify_now` first, on the
event loop, and only where that has no answer calls `verify` in a thread. What was verified a moment ago
is remembered as a keyed digest, so that many clients coming back at once need not wait for argon2 again.
"""

import hmac
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Protocol, Self

from msgspec import Struct, field

from penstock.core.settings import TopicLimits
from penstock.core.topics import SHARE_PREFIX, check_filter, covers, matches
from penstock.errors import InvalidConfig, InvalidFilter

REMEMBERED_S = 300.0
"""How long a verified password need not be verified again."""
REMEMBERED_USERS = 100_000
SLOW_CHECKS_AT_ONCE = 4
"""Each takes the 64 MiB that argon2 wants by default, so this many are part of the memory ceiling."""

EVERY_USER = "*"
_ANY_LENGTH = TopicLimits(max_bytes=65535, max_levels=65535)
_STORED = re.compile(
    r"\$argon2id\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{22,}", re.ASCII
)
_USUAL_COST = "$argon2id$v=19$m=65536,t=3,p=4"
_NO_SECRET = f"${'A' * 22}${'A' * 43}"  # salt and digest that no password has
_PLACEHOLDER = re.compile("(%[uc])")
_COMMENT = re.compile(r"(?<=\S)\s+#.*")  # no valid filter holds a blank before its #


class Identity(Struct, frozen=True):
    """Who somebody turned out to be; `user` is None for who came without a name."""

    user: str | None
    client_id: str


class Access(Protocol):
    """Decides who comes in and what they may do. Nothing but `verify` may take long."""

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        """Tell whether these credentials are good; None means that only `verify` can tell."""

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Tell whether these credentials are good; it is slow and belongs into a thread."""

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Tell whether messages to this topic are accepted from this client."""

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Tell whether every topic of this filter, the inner one of a shared filter, may be read."""

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Tell whether the retained value and the history of this topic may be read."""


class OpenAccess:
    """Everyone may come in and do everything, with any name or none."""

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        """Accept anyone."""
        return True

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Accept anyone."""
        return True

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Allow any topic."""
        return True

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Allow any filter."""
        return True

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Allow any topic."""
        return True


class Rule(Struct, frozen=True):
    """One filter of the access list, cut at its placeholders."""

    parts: tuple[str, ...]

    def filter_for(self, identity: Identity) -> str | None:
        """Put the client's names in; None where they would make the rule mean something else."""
        if len(self.parts) == 1:
            return self.parts[0]
        names = {"%u": identity.user or "", "%c": identity.client_id}
        if not all(is_level(names[part]) for part in self.parts if part in names):
            return None
        filter = "".join(names.get(part, part) for part in self.parts)
        if filter.startswith("$") and not self.parts[0].startswith("$"):
            return None  # a client that calls itself $SYS does not own $SYS
        return filter


class Grants(Struct):
    """The rules for one kind of action, by user name; None holds those of the anonymous."""

    rules: dict[str | None, list[Rule]] = field(default_factory=dict)

    def filters_for(self, identity: Identity) -> Iterator[str]:
        """The filters of the rules that apply to this client."""
        holders = (None,) if identity.user is None else (identity.user, EVERY_USER)
        for holder in holders:
            for rule in self.rules.get(holder, ()):
                filter = rule.filter_for(identity)
                if filter is not None:
                    yield filter


class Acl(Struct):
    """The access list."""

    publish: Grants = field(default_factory=Grants)
    subscribe: Grants = field(default_factory=Grants)


class Contents(Struct, frozen=True):
    """What the files said when they were read last; None stands for a file that is not used."""

    passwords: dict[str, str] | None
    acl: Acl | None
    decoys: tuple[str, ...]
    """Hashes that cost what those of users cost, for names that nobody has."""


class FileAccess:
    """Users and rights from files.

    Without a password file a name proves nothing, so everyone is anonymous. Without an access list
    everyone who came in may do everything.
    """

    def __init__(
        self, read: Callable[[], Contents], allow_anonymous: bool, remembered: "RememberedPasswords"
    ) -> None:
        self._read = read
        self._allow_anonymous = allow_anonymous
        self._remembered = remembered
        self._slots = BoundedSemaphore(SLOW_CHECKS_AT_ONCE)
        self._contents = read()  # replaced as a whole, so that threads see the old or the new one

    @classmethod
    def load(
        cls,
        password_file: Path | None,
        acl_file: Path | None,
        allow_anonymous: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Read both files.

        Raises:
            InvalidConfig: a file cannot be read or understood; the text names file and line.
        """
        return cls(
            partial(read_files, password_file, acl_file), allow_anonymous, RememberedPasswords(monotonic)
        )

    def reload(self) -> None:
        """Read both files again; after an error everything stays as it was.

        Raises:
            InvalidConfig: a file cannot be read or understood; the text names file and line.
        """
        self._contents = self._read()

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        """Answer for the anonymous, for the impossible and for who was verified a moment ago."""
        passwords = self._contents.passwords
        if user is not None and "\0" in user:
            return False
        if user is None or passwords is None:
            return self._allow_anonymous
        if not password:
            return False
        # A wrong password gets no quick "no": that would tell who exists and was here lately.
        return self._remembered.has(user, passwords.get(user), password) or None

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Check a password with argon2, which takes as long for users that do not exist."""
        with self._slots:
            answer = self.verify_now(user, password)  # it may have been verified while we waited
            if answer is not None or user is None or password is None:
                return bool(answer)
            contents = self._contents
            stored = (contents.passwords or {}).get(user)
            if stored is None:
                is_password(password, contents.decoys[hash(user) % len(contents.decoys)])
                return False
            if not is_password(password, stored):
                return False
            self._remembered.add(user, stored, password)
            return True

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Tell whether some publish rule matches the topic."""
        acl = self._contents.acl
        return acl is None or any(
            matches(rule, topic) for rule in acl.publish.filters_for(self._proven(identity))
        )

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Tell whether a single subscribe rule covers the whole filter."""
        acl = self._contents.acl
        return acl is None or any(
            covers(rule, filter) for rule in acl.subscribe.filters_for(self._proven(identity))
        )

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Tell whether some subscribe rule matches the topic."""
        acl = self._contents.acl
        return acl is None or any(
            matches(rule, topic) for rule in acl.subscribe.filters_for(self._proven(identity))
        )

    def _proven(self, identity: Identity) -> Identity:
        return Identity(None, identity.client_id) if self._contents.passwords is None else identity


# Passwords


class RememberedPasswords:
    """Who was verified lately: one entry a user, of which the oldest goes when there are too many.

    A digest is made from the stored hash as well, so it is worth nothing once the user's line changed.
    """

    def __init__(self, monotonic: Callable[[], float], limit: int = REMEMBERED_USERS) -> None:
        self._monotonic = monotonic
        self._limit = limit
        self._key = os.urandom(blake2b.MAX_KEY_SIZE)
        self._entries: dict[str, tuple[bytes, float]] = {}
        self._lock = Lock()  # verifications end in several threads at once

    def add(self, user: str, stored: str, password: bytes) -> None:
        """Remember that this password belongs to this stored hash."""
        entry = (self._digest(stored, password), self._monotonic() + REMEMBERED_S)
        with self._lock:
            self._entries.pop(user, None)
            if len(self._entries) >= self._limit:
                del self._entries[next(iter(self._entries))]
            self._entries[user] = entry

    def has(self, user: str, stored: str | None, password: bytes) -> bool:
        """Tell whether this very password is remembered for the user's present hash."""
        entry = self._entries.get(user)
        if entry is None or stored is None:
            return False
        digest, until = entry
        return self._monotonic() < until and hmac.compare_digest(digest, self._digest(stored, password))

    def _digest(self, stored: str, password: bytes) -> bytes:
        return blake2b(b"%s\0%s" % (stored.encode(), password), key=self._key, digest_size=32).digest()


def hash_password(password: bytes) -> str:
    """Make what the password file holds instead of a password."""
    from argon2 import PasswordHasher  # noqa: PLC0415 - only who uses passwords pays for loading it

    return PasswordHasher().hash(password)


def is_password(password: bytes, stored: str) -> bool:
    """Tell whether this hash was made from this password."""
    from argon2 import PasswordHasher  # noqa: PLC0415 - only who uses passwords pays for loading it
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415

    try:
        return PasswordHasher().verify(stored, password)
    except (InvalidHashError, VerificationError):
        return False


def is_user_name(name: str) -> bool:
    """Tell whether both files can hold this name and mean one user by it."""
    return (
        name.isprintable()
        and name == name.strip()
        and name not in ("", EVERY_USER)
        and not set(name) & {*":#"}
    )


def is_level(name: str) -> bool:
    """Tell whether a name can stand in a filter and mean nothing but itself."""
    return bool(name) and not set(name) & {*"/+#\0"}


# Files


class Line(Struct, frozen=True):
    """A line that says something, and where it stands."""

    file: Path
    number: int
    text: str

    def error(self, text: str) -> InvalidConfig:
        """A complaint about this line."""
        return InvalidConfig(f"{self.file}:{self.number}: {text}")


def read_files(password_file: Path | None, acl_file: Path | None) -> Contents:
    """Read the password file and the access list, as far as there are any."""
    passwords = None if password_file is None else read_passwords(password_file)
    acl = None if acl_file is None else read_acl(acl_file, has_users=passwords is not None)
    costs = {stored.rsplit("$", 2)[0] for stored in (passwords or {}).values()} or {_USUAL_COST}
    return Contents(passwords, acl, tuple(cost + _NO_SECRET for cost in sorted(costs)))


def read_passwords(file: Path) -> dict[str, str]:
    """Read lines of `name:$argon2id$...`."""
    passwords: dict[str, str] = {}
    for line in _lines(file):
        name, _, stored = line.text.partition(":")
        if not is_user_name(name):
            raise line.error("a line is a user name, a colon and an argon2id hash")
        if not _STORED.fullmatch(stored):
            raise line.error(f"what follows {name!r} is no argon2id hash: make one with `penstock passwd`")
        if name in passwords:
            raise line.error(f"{name!r} has a line already")
        passwords[name] = stored
    return passwords


def read_acl(file: Path, *, has_users: bool) -> Acl:
    """Read sections of rules, each below the line that says whose they are."""
    acl = Acl()
    targets = {"publish": (acl.publish,), "subscribe": (acl.subscribe,), "both": (acl.publish, acl.subscribe)}
    holder: str | None = ""  # nobody yet
    for line in _lines(file):
        word, *rest = line.text.split(maxsplit=1)
        argument = _COMMENT.sub("", rest[0]) if rest else ""
        if word in targets:
            if holder == "":
                raise line.error("a rule stands below a line `user <name>`, `user *` or `anonymous`")
            rule = _rule(line, argument, holder)
            for grants in targets[word]:
                grants.rules.setdefault(holder, []).append(rule)
        elif word == "user":
            holder = _holder(line, argument, has_users)
        elif word == "anonymous" and (not argument or argument.startswith("#")):
            holder = None
        else:
            raise line.error(
                "expected `user`, `publish`, `subscribe` or `both` with a word, or `anonymous` alone"
            )
    return acl


def _holder(line: Line, name: str, has_users: bool) -> str:
    if name != EVERY_USER and not is_user_name(name):
        raise line.error("`user` is followed by a name, or by * for every user")
    if not has_users:
        raise line.error("rules for users need a password file: without one everyone is anonymous")
    return name


def _rule(line: Line, filter: str, holder: str | None) -> Rule:
    try:
        check_filter(filter, _ANY_LENGTH)
    except InvalidFilter as error:
        raise line.error(str(error)) from error
    if filter.startswith(SHARE_PREFIX):
        raise line.error("rules are about topics: shared subscriptions need what plain ones need")
    if holder is None and "%u" in filter:
        raise line.error("%u stands for the user name, and the anonymous have none")
    return Rule(tuple(_PLACEHOLDER.split(filter)))


def _lines(file: Path) -> Iterator[Line]:
    """The lines that are neither empty nor a comment."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{file}: cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig(f"{file}:{number}: this is not UTF-8") from error
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip()
        if words and not words.startswith("#"):
            yield Line(file, number, words)
