"""Who is asking: an `Authorization` header or a certificate, and the identity behind it.

`Basic` is RFC 7617. `Bearer` is for those who can only send a token: it is `user:password`, as it is or in
base64. Browsers send no headers with a WebSocket or an `EventSource`: there, and nowhere else, the same token
may be in the query.

Passwords are slow to check on purpose: what was verified a moment ago is known at once, the rest is done in a
few threads, and not at all for who has gone meanwhile, or whose address was wrong too often.
"""

import asyncio
from base64 import b64decode
from binascii import Error
from urllib.parse import unquote_to_bytes

from penstock.core.access import SLOW_CHECKS_AT_ONCE, Access, Identity
from penstock.doors.base import Peer
from penstock.doors.guard import Guard
from penstock.doors.passwords import PasswordChecks, TooManyWaiting
from penstock.errors import BadCredentials, InvalidRequest, QuotaExceeded

REFUSED = "there is no such user with that password"
CHECKS_AT_ONCE = SLOW_CHECKS_AT_ONCE // 2
"""The other half is for the other doors, whatever comes here."""
MOST_CHECKS = 64
"""How many may be made or wait."""
TOKEN = b"access_token"
"""The parameter that stands for `Authorization` where a browser can send none."""


class Credentials:
    """Finds out who somebody is."""

    def __init__(
        self,
        access: Access,
        loop: asyncio.AbstractEventLoop,
        guard: Guard,
        *,
        is_named_by_certificate: bool,
    ) -> None:
        self._access = access
        self._guard = guard
        self.is_named_by_certificate = is_named_by_certificate
        self._checks = PasswordChecks(access, loop, at_once=CHECKS_AT_ONCE, limit=MOST_CHECKS)

    def close(self) -> None:
        """Check no more passwords."""
        self._checks.close()

    @property
    def generation(self) -> int:
        """Rises when everyone has to be asked again."""
        return self._access.generation

    def decide_now(self, authorization: bytes | None, client_id: str, peer: Peer) -> Identity | None:
        """Who it is; None if only `decide` can tell.

        Raises:
            BadCredentials: nobody who may come in.
        """
        if self.is_named_by_certificate and peer.certificate_name is not None:
            return Identity(peer.certificate_name, client_id, is_certified=True)
        user, password = (None, None) if authorization is None else parse_authorization(authorization)
        verdict = self._access.verify_now(user, password)
        if verdict is False:
            raise BadCredentials(
                REFUSED if user is not None else "who are you? Give a user name and password"
            )
        return Identity(user, client_id) if verdict else None

    async def decide(self, authorization: bytes, client_id: str, peer: Peer) -> Identity:
        """Who it is, found out in a thread.

        Raises:
            BadCredentials: nobody who may come in.
            QuotaExceeded: its address was wrong too often.
            TooManyWaiting: it has to come again.
        """
        user, password = parse_authorization(authorization)
        is_first = not self._checks.is_under_way(user, password)
        if is_first and not self._guard.may_try(peer.host):
            raise QuotaExceeded("too many wrong passwords came from this address")
        try:
            is_wrong = not await self._checks.verify(user, password)
        except TooManyWaiting:
            self._guard.forgive(peer.host)
            raise
        if is_wrong:
            raise BadCredentials(REFUSED)
        if is_first:
            self._guard.forgive(peer.host)
        return Identity(user, client_id)


def parse_authorization(value: bytes) -> tuple[str, bytes]:
    """User and password of an `Authorization` header.

    Raises:
        BadCredentials: it is of another kind, or not well formed.
    """
    scheme, _, token = value.partition(b" ")
    token = token.strip()
    if scheme.lower() == b"bearer" and b":" in token:
        pair = token
    elif scheme.lower() in (b"basic", b"bearer"):
        pair = _decoded(token)
    else:
        raise BadCredentials("Authorization is neither Basic nor Bearer")
    user, colon, password = pair.partition(b":")
    if not colon:
        raise BadCredentials("Authorization has no user and password with a colon between them")
    try:
        return user.decode(), password
    except UnicodeDecodeError:
        raise BadCredentials("the user name is not UTF-8") from None


def authorization_in(query: bytes) -> bytes | None:
    """What a query brings instead of an `Authorization` header; None if it brings nothing.

    Raises:
        InvalidRequest: it brings two.
    """
    if TOKEN not in query:
        return None
    pairs = (pair.partition(b"=") for pair in query.split(b"&"))
    tokens = [unquote_to_bytes(value) for name, _, value in pairs if name == TOKEN]
    if len(tokens) > 1:
        raise InvalidRequest(f"the query has {TOKEN.decode()!r} twice")
    return b"Bearer " + tokens[0] if tokens else None


def _decoded(token: bytes) -> bytes:
    padded = token + b"=" * (-len(token) % 4)
    is_standard = b"+" in token or b"/" in token
    try:
        return b64decode(padded, None if is_standard else b"-_", validate=True)
    except (Error, ValueError):
        raise BadCredentials("Authorization is not base64") from None
