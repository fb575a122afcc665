"""HTTP authentication: an `Authorization` header or a client certificate, and the identity behind it.

`Basic` is RFC 7617. `Bearer` is for clients that can only send a token: `user:password`, plain or in base64.
Browsers send no headers with a WebSocket or an `EventSource`: only there the same token may be in the query.
Pages of this server have a login cookie instead (`core/access/logins.py`); `heads.py` decides if it counts.

Passwords are slow to check on purpose. A recently verified one is accepted at once; others wait for their
turn (`password_checks.py`), unless the client disconnects or its address has sent too many wrong ones.
Meanwhile the connection is not parsed further. An identity is checked once per connection, and again when
credentials or passwords change.
"""

import asyncio
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import structlog

from penstock.core.access.access import Access
from penstock.core.access.identity import Identity
from penstock.core.access.logins import Logins
from penstock.errors import BadCredentials, InvalidRequest, QuotaExceeded, StorageUnavailable
from penstock.net.door import Peer
from penstock.net.http.errors import RETRY_AFTER_S, headers_of, status_of
from penstock.net.http.request import Refusal, Request
from penstock.net.password_checks import PasswordChecks, TooManyWaiting
from penstock.net.read_pause import PASSWORD_CHECK

if TYPE_CHECKING:
    from penstock.net.http.connection import HttpConnection
    from penstock.net.http.door import HttpDoor


REFUSED = "unknown user or wrong password"
ENDED = "your login has ended: log in again"
FOREIGN = (
    "credentials are required: the login cookie counts only for pages of this server; a program sends "
    "X-Requested-With: penstock-console, too"
)
CONSOLE = "penstock-console"
"""Value of `X-Requested-With` by which our own pages make themselves known. Pages of other origins cannot
send that header."""
SECURE = b"_s"
"""End of the cookie's name, if its login is encrypted."""
LONGEST_COOKIE_S = 400 * 86_400
"""Browsers keep no cookie for longer."""
QUIET_CHALLENGE = 'Bearer realm="penstock"'
"""Challenge without a dialog of the browser."""
TOKEN = b"access_token"
"""Query parameter that replaces `Authorization` where a browser can send none."""
log = structlog.get_logger("penstock.http")


class Authenticator:
    """Identity of a request, by its credentials or certificate."""

    def __init__(
        self,
        access: Access,
        checks: PasswordChecks,
        logins: Logins | None = None,
        *,
        is_named_by_certificate: bool,
    ) -> None:
        self._access = access
        self._checks = checks
        self.logins = logins
        self.is_named_by_certificate = is_named_by_certificate

    @property
    def generation(self) -> int:
        """Increases when every identity has to be checked again."""
        return self._access.generation

    def decide_now(self, authorization: bytes | None, client_id: str, peer: Peer) -> Identity | None:
        """Return the identity if it is known at once; None if `decide` is needed.

        Raises:
            BadCredentials: not a valid user.
        """
        if self.is_named_by_certificate and peer.certificate_name is not None:
            return Identity(peer.certificate_name, client_id, is_certified=True)
        user, password = (None, None) if authorization is None else parse_authorization(authorization)
        verdict = self._access.verify_now(user, password)
        if verdict is False:
            raise BadCredentials(
                REFUSED if user is not None else "credentials are required: send a user name and password"
            )
        return Identity(user, client_id) if verdict else None

    def decide_by_login(self, token: bytes, client_id: str, peer: Peer) -> Identity:
        """Return the identity of a login; a certificate comes first.

        Raises:
            BadCredentials: the login has ended.
        """
        if self.is_named_by_certificate and peer.certificate_name is not None:
            return Identity(peer.certificate_name, client_id, is_certified=True)
        user = None if self.logins is None else self.logins.find(token)
        if user is None:
            raise BadCredentials(ENDED)
        return Identity(user, client_id)

    async def decide(self, authorization: bytes, client_id: str, peer: Peer) -> Identity:
        """Return the identity after a password check in a thread.

        Raises:
            BadCredentials: not a valid user.
            QuotaExceeded: too many wrong passwords from this address.
            TooManyWaiting: the client may retry.
        """
        user, password = parse_authorization(authorization)
        if not await self._checks.verify(user, password, peer.host):
            raise BadCredentials(REFUSED)
        return Identity(user, client_id)


def parse_authorization(value: bytes) -> tuple[str, bytes]:
    """Parse user and password of an `Authorization` header.

    Raises:
        BadCredentials: another scheme, or malformed.
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


def named_user(authorization: bytes) -> str | None:
    """Return the user that credentials name, for a record of their refusal; None if they name none."""
    try:
        return parse_authorization(authorization)[0]
    except BadCredentials:
        return None


def authorization_in(query: bytes) -> bytes | None:
    """Return the token of a query as an `Authorization` header; None if there is none.

    Raises:
        InvalidRequest: there are two.
    """
    if TOKEN not in query:
        return None
    pairs = [pair.partition(b"=") for pair in query.split(b"&")]
    tokens = [unquote_to_bytes(value) for name, _, value in pairs if name == TOKEN]
    if len(tokens) > 1:
        raise InvalidRequest(f"the query has {TOKEN.decode()!r} twice")
    return b"Bearer " + tokens[0] if tokens else None


def token_in(cookies: bytes, name: bytes) -> bytes | None:
    """Return the value of a login cookie; of several the first (RFC 6265, 5.4: the most specific path).

    An encrypted login comes first, whose cookie has a name of its own.
    """
    found: dict[bytes, bytes] = {}
    for pair in cookies.split(b";"):
        known, _, value = pair.strip().partition(b"=")
        found.setdefault(known, value)
    return found.get(name + SECURE, found.get(name))


def login_cookie(name: str, token: str, lifetime_s: float, *, is_secure: bool) -> tuple[str, str]:
    """Return the header that sets the login cookie; with a lifetime of 0 it deletes the cookie.

    A plain connection may not replace the cookie of an encrypted one, so they have different names.
    """
    secure = "; Secure" if is_secure else ""
    name += SECURE.decode() if is_secure else ""
    lifetime_s = min(lifetime_s, LONGEST_COOKIE_S)
    value = f"{name}={token}; Path=/; Max-Age={int(lifetime_s)}; HttpOnly; SameSite=Strict{secure}"
    return "Set-Cookie", value


def no_login_cookies(name: str) -> list[tuple[str, str]]:
    """Return the headers that delete the login cookies of plain and of encrypted connections."""
    return [login_cookie(name, "", 0, is_secure=is_secure) for is_secure in (False, True)]


def is_from_console(request: Request) -> bool:
    """True if a request has the header of our own pages."""
    return request.header(b"x-requested-with") == CONSOLE


def _decoded(token: bytes) -> bytes:
    padded = token + b"=" * (-len(token) % 4)
    is_standard = b"+" in token or b"/" in token
    try:
        return b64decode(padded, None if is_standard else b"-_", validate=True)
    except (Error, ValueError):
        raise BadCredentials("Authorization is not base64") from None


class ConnectionAuth:
    """Authentication of the requests of one connection; the last identity is cached.

    Args:
        pending: the requests that have not begun, in order.
    """

    __slots__ = ("_check", "_connection", "_door", "_identity", "_known_as", "_pending")

    __deletable__ = ("_connection",)  # compiled classes say so

    def __init__(self, connection: "HttpConnection", door: "HttpDoor", pending: Iterable[Request]) -> None:
        self._connection = connection
        self._door = door
        self._pending = pending
        # On one connection the identity is nearly always the same.
        self._known_as: tuple[bytes | None, str, int] | None = None
        self._identity: Identity | None = None
        self._check: asyncio.Task[None] | None = None

    @property
    def is_checking(self) -> bool:
        """A password is being checked."""
        return self._check is not None

    def authenticate(self, request: Request) -> None:
        """Authenticate a request, unless that is done, not needed, or another check is running."""
        if request.refusal is not None:
            return
        if request.login is not None:
            self._ask_login(request)
        elif not self._knows(request) and self._check is None:
            self._ask(request)

    def cancel(self) -> None:
        """Cancel a running password check."""
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def close(self) -> None:
        """Drop the reference to the connection, which refers to this object."""
        self.cancel()
        del self._connection

    def _knows(self, request: Request) -> bool:
        """True if the identity is the same as before, or not needed."""
        known = self._known_as
        if (
            known is not None
            and known[0] == request.authorization
            and known[1] == request.client_id
            and known[2] == self._door.credentials.generation
        ):
            assert self._identity is not None
            request.identity, request.is_proven = self._identity, True
        return request.is_proven

    def _ask(self, request: Request) -> None:
        credentials = self._door.credentials
        try:
            identity = credentials.decide_now(request.authorization, request.client_id, request.peer)
        except BadCredentials as error:
            self._refuse(request, error)
            return
        if identity is None:
            self._connection.pause(PASSWORD_CHECK)
            self._check = self._door.loop.create_task(self._verify(request))
        else:
            self._accept(request, identity)

    def _ask_login(self, request: Request) -> None:
        """Authenticate by the login cookie, which may end at any time; so nothing is cached."""
        if request.is_proven:
            return
        assert request.login is not None
        try:
            request.identity = self._door.credentials.decide_by_login(
                request.login, request.client_id, request.peer
            )
        except BadCredentials as error:
            self._refuse(request, error)
        else:
            request.is_proven = True

    async def _verify(self, request: Request) -> None:
        assert request.authorization is not None
        try:
            identity = await self._door.credentials.decide(
                request.authorization, request.client_id, request.peer
            )
        except BadCredentials as error:
            self._refuse(request, error)
        except QuotaExceeded as error:
            request.refusal = _retry_later(status_of(error), str(error), error.code)
        except TooManyWaiting:
            request.refusal = _retry_later(503, "too many password checks are waiting", "too-busy")
        except Exception:  # an error must neither admit a client nor leave it waiting
            log.exception("password not checked", peer=str(request.peer))
            request.refusal = _retry_later(503, "passwords cannot be checked now", StorageUnavailable.code)
        else:
            self._accept(request, identity)
        self._check = None
        for other in self._pending:
            self.authenticate(other)
        if self._check is None:
            self._connection.resume(PASSWORD_CHECK)
        else:
            self._connection.proceed()

    def _accept(self, request: Request, identity: Identity) -> None:
        if identity.user is not None and identity != self._identity:
            self._door.on_authenticated(request.peer, identity)
        self._known_as = (request.authorization, request.client_id, self._door.credentials.generation)
        self._identity = request.identity = identity
        request.is_proven = True

    def _refuse(self, request: Request, error: BadCredentials) -> None:
        self._door.on_unauthenticated(request.peer, request.authorization)
        detail, headers = str(error), headers_of(error)
        if request.login is not None or is_from_console(request):
            headers = [("WWW-Authenticate", QUIET_CHALLENGE)]
        logins = self._door.credentials.logins
        if logins is not None and request.login is not None:
            headers += no_login_cookies(logins.cookie)
        elif logins is not None and request.authorization is None and _has_cookie(request, logins.cookie):
            detail = FOREIGN
        request.refusal = Refusal(401, detail, code=error.code, headers=headers, is_fatal=False)


def _has_cookie(request: Request, name: str) -> bool:
    cookies = request.header(b"cookie")
    return cookies is not None and token_in(cookies.encode("latin-1"), name.encode()) is not None


def _retry_later(status: int, detail: str, code: str) -> Refusal:
    """Refusal after which the client may retry."""
    headers = [("Retry-After", str(RETRY_AFTER_S))]
    return Refusal(status, detail, code=code, headers=headers, is_fatal=False)
