"""SCRAM-SHA-256 (RFC 5802 and RFC 7677): both sides prove that they know a password and neither sends it.

`ScramServer` needs only keys that were made from the password and computes a few HMACs, so it may run on an
event loop. `ScramClient` does the expensive part. Neither knows how its messages travel. Channel binding is
not offered. Whatever arrives, the only error is `BadCredentials`; which names exist is not to be learnt
from anything a server says, nor from how long it takes.

Both sides compute with the text of names and passwords, so texts that look the same become the same first:
SASLprep (RFC 4013). The password file, the access list and plain passwords are compared as they are written.
"""

import hmac
import re
import secrets
import stringprep
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from enum import Enum, auto
from hashlib import pbkdf2_hmac, sha256
from unicodedata import ucd_3_2_0  # the version that stringprep is about

from msgspec import Struct

from penstock.errors import BadCredentials

METHOD = "SCRAM-SHA-256"
ITERATIONS = 100_000
"""Iterations of a new password's hash, paid by every connecting client and every guess.

OWASP recommends 600,000 for servers that hash. Here the client hashes, and a processor of a few hundred MHz
would take longer than a server waits for a connection; with this number it takes seconds, which it can save
by storing the keys. A desktop takes some hundredths of a second.
"""
FEWEST_ITERATIONS = 4096  # RFC 7677 section 4
MOST_ITERATIONS = 2_000_000
"""Most iterations that a client accepts from a server: more would keep it busy for nothing."""
SALT_BYTES = 16
KEY_BYTES = 32
MAX_MESSAGE_BYTES = 4096
MAX_NAME_BYTES = 512
"""A message has room for such a name twice, with every character of it escaped."""

_NONCE_BYTES = 18
_NAME = r"(?:[^\0=,]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"
_EXTENSIONS = r"(?:,[A-Za-ln-z]=[^\0,]+)*"  # ignored, but "m" is one that must not be
_CLIENT_FIRST = re.compile(rf"([ny],(?:a=({_NAME}))?,)(n=({_NAME}),r=({_NONCE}){_EXTENSIONS})")
_CLIENT_FINAL = re.compile(rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")
_SERVER_FIRST = re.compile(rf"r=({_NONCE}),s=({_BASE64}),i=([1-9][0-9]{{0,8}}){_EXTENSIONS}")
_SERVER_FINAL = re.compile(rf"v=({_BASE64}){_EXTENSIONS}")
_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class ScramKeys(Struct, frozen=True):
    """Keys that a server stores: enough to verify a proof, not enough to make one."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


def make_keys(password: str, iterations: int = ITERATIONS, salt: bytes | None = None) -> ScramKeys:
    """Make the keys of a new password.

    Raises:
        ValueError: the password has characters that SASLprep does not allow.
    """
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    salted = _salted(prepare(password, is_stored=True), salt, iterations)
    return ScramKeys(iterations, salt, _stored_key(salted), _server_key(salted))


class Decoys:
    """Decoy keys of unknown users: always the same for a name, and no password matches them."""

    def __init__(self, secret: bytes, likenesses: Iterable[ScramKeys]) -> None:
        self._secret = secret
        shapes = {(keys.iterations, len(keys.salt)) for keys in likenesses}
        self._shapes = sorted(shapes) or [(ITERATIONS, SALT_BYTES)]

    def keys_for(self, name: str) -> ScramKeys:
        """Return keys that look like those of a user."""
        seed = _hmac(self._secret, name.encode())
        iterations, salt_bytes = self._shapes[seed[0] % len(self._shapes)]
        salt = b"".join(_hmac(seed, bytes([block])) for block in range(-(-salt_bytes // KEY_BYTES)))
        return ScramKeys(iterations, salt[:salt_bytes], _hmac(seed, b"stored"), _hmac(seed, b"server"))


# The server's side


class _Step(Enum):
    START = auto()
    FIRST = auto()
    FINAL = auto()
    DONE = auto()
    FAILED = auto()


class ScramServer:
    """Server side of one exchange; `user` is set once `is_done`.

    Args:
        find_keys: returns the keys of a user, or decoys for an unknown one. It is called again at the end, so
            that keys replaced meanwhile do not count.
    """

    method = METHOD

    def __init__(self, find_keys: Callable[[str], ScramKeys], nonce: str | None = None) -> None:
        self._find_keys = find_keys
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._step = _Step.START
        self._name = ""
        self._header = ""
        self._messages = ""  # the client's first without its header, and our first
        self._keys: ScramKeys | None = None

    @property
    def is_done(self) -> bool:
        """The client has proven its password."""
        return self._step is _Step.DONE

    @property
    def user(self) -> str | None:
        """The user that was proven."""
        return self._name if self.is_done else None

    def respond(self, data: bytes) -> bytes:
        """Take the client's next message and make ours; a client may begin with nothing.

        Raises:
            BadCredentials: this exchange has failed, whatever comes next.
        """
        step, self._step = self._step, _Step.FAILED
        if step is _Step.START and not data:
            self._step = _Step.FIRST
            return b""
        if step in (_Step.START, _Step.FIRST):
            reply = self._on_first(data)
            self._step = _Step.FINAL
        elif step is _Step.FINAL:
            reply = self._on_final(data)
            self._step = _Step.DONE
        else:
            raise BadCredentials("the exchange is over")
        return reply.encode()

    def _on_first(self, data: bytes) -> str:
        self._header, authorized, bare, name, nonce = _match(_CLIENT_FIRST, data)
        if authorized and authorized != name:
            raise BadCredentials("a user cannot act as another user")
        self._name = _user_name(name)
        self._keys = self._find_keys(self._name)
        self._nonce = nonce + self._nonce
        reply = f"r={self._nonce},s={_text(self._keys.salt)},i={self._keys.iterations}"
        self._messages = f"{bare},{reply}"
        return reply

    def _on_final(self, data: bytes) -> str:
        unproven, binding, nonce, proof = _match(_CLIENT_FINAL, data)
        if binding != _text(self._header.encode()):
            raise BadCredentials("another header than at the beginning, or channel binding")
        if not hmac.compare_digest(nonce, self._nonce):
            raise BadCredentials("the response to another challenge")
        assert self._keys is not None
        messages = f"{self._messages},{unproven}".encode()
        client_key = _exclusive_or(_key(proof), _hmac(self._keys.stored_key, messages))
        is_right = hmac.compare_digest(sha256(client_key).digest(), self._keys.stored_key)
        if not is_right or self._find_keys(self._name) != self._keys:
            raise BadCredentials("a wrong password, or no such user")
        return f"v={_text(_hmac(self._keys.server_key, messages))}"


# The client's side


class ScramClient:
    """One exchange with a server: `begin`, `prove`, and `check` that the server knew us.

    Raises:
        ValueError: the name or the password has characters that SASLprep does not allow.
    """

    def __init__(self, user: str, password: str, nonce: str | None = None) -> None:
        self._name = _escape(prepare(user, is_stored=False))
        self._password = prepare(password, is_stored=True)
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._signature: bytes | None = None

    def begin(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def prove(self, data: bytes) -> bytes:
        """Take the server's first message and make the proof; slow, so call it in a thread.

        Raises:
            BadCredentials: the message does not belong to this exchange, or asks for too little or too much.
        """
        if self._signature is not None:
            raise BadCredentials("the server asked once too often")
        nonce, salt, count = _match(_SERVER_FIRST, data)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise BadCredentials("the response to another challenge")
        if not FEWEST_ITERATIONS <= int(count) <= MOST_ITERATIONS:
            raise BadCredentials(f"{count} iterations: it must be {FEWEST_ITERATIONS} to {MOST_ITERATIONS}")
        salted = _salted(self._password, b64decode(salt), int(count))
        unproven = f"c={_text(b'n,,')},r={nonce}"
        messages = f"{self._bare},{data.decode()},{unproven}".encode()
        proof = _exclusive_or(_client_key(salted), _hmac(_stored_key(salted), messages))
        self._signature = _hmac(_server_key(salted), messages)
        return f"{unproven},p={_text(proof)}".encode()

    def check(self, data: bytes) -> None:
        """Verify the server's last message.

        Raises:
            BadCredentials: the server does not have the keys of this password.
        """
        (signature,) = _match(_SERVER_FINAL, data)
        if self._signature is None or not hmac.compare_digest(b64decode(signature), self._signature):
            raise BadCredentials("the server does not know the password")

    @property
    def _bare(self) -> str:
        return f"n={self._name},r={self._nonce}"


# What both sides compute


def _salted(prepared: str, salt: bytes, iterations: int) -> bytes:
    return pbkdf2_hmac("sha256", prepared.encode(), salt, iterations)


def _client_key(salted: bytes) -> bytes:
    return _hmac(salted, b"Client Key")


def _stored_key(salted: bytes) -> bytes:
    return sha256(_client_key(salted)).digest()


def _server_key(salted: bytes) -> bytes:
    return _hmac(salted, b"Server Key")


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _exclusive_or(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


# Messages


def _match(pattern: re.Pattern[str], data: bytes) -> tuple[str, ...]:
    """The parts of a message, empty where one is absent."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise BadCredentials(f"a SCRAM message of {len(data)} bytes")
    try:
        found = pattern.fullmatch(data.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise BadCredentials("this is not the SCRAM message that was due")
    return found.groups(default="")


def _user_name(escaped: str) -> str:
    name = _unescape(escaped)
    if len(name.encode()) > MAX_NAME_BYTES:
        raise BadCredentials("a user name that is too long")
    try:
        return prepare(name, is_stored=False)
    except ValueError as error:
        raise BadCredentials(f"a user name that cannot be: {error}") from None


def _key(text: str) -> bytes:
    key = b64decode(text)
    if len(key) != KEY_BYTES:
        raise BadCredentials(f"a proof of {len(key)} bytes")
    return key


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def prepare(text: str, *, is_stored: bool) -> str:
    """Prepare a text by RFC 4013.

    Args:
        is_stored: refuse characters that Unicode 3.2 does not know, as RFC 4013 demands for text that is
        stored or hashed; text for a look-up may have them.

    Raises:
        ValueError: it holds a prohibited character, or nothing is left of it.
    """
    if text.isascii() and text.isprintable() and text:
        return text
    kept = (
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = ucd_3_2_0.normalize("NFKC", "".join(kept))
    if not prepared:
        raise ValueError("nothing is left of it")
    for char in prepared:
        if any(is_prohibited(char) for is_prohibited in _PROHIBITED):
            raise ValueError(f"it holds U+{ord(char):04X}, which is not allowed")
        if is_stored and stringprep.in_table_a1(char):
            raise ValueError(f"it holds U+{ord(char):04X}, which Unicode 3.2 does not have")
    _check_directions(prepared)
    return prepared


def _check_directions(text: str) -> None:
    """Refuse what could be shown in another order than it is written (RFC 3454 section 6)."""
    if not any(map(stringprep.in_table_d1, text)):
        return
    if any(map(stringprep.in_table_d2, text)):
        raise ValueError("it mixes writing from the left and from the right")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ValueError("it is written from the right, but does not begin and end like that")
