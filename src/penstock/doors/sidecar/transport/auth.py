"""Authentication of calls: `authorization`, or `username` and `password` in the metadata, or a certificate.

Clients of one user may also name themselves with `x-client-id`, for rules with `%c`. An identity is
checked once per connection, and again when passwords have changed. Passwords wait for their turn
(`password_checks.py`), unless the call ends meanwhile. Health and reflection need no credentials.
"""

from asyncio import AbstractEventLoop, Task
from base64 import b64encode
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from penstock.core.access.access import Access
from penstock.core.access.identity import Identity
from penstock.core.diagnostics.audit import AuditTrail
from penstock.core.diagnostics.counters import Counters
from penstock.doors.sidecar.transport.method import Call, EndCause, Handler, Metadata
from penstock.doors.sidecar.transport.status import refuse
from penstock.errors import BadCredentials, InvalidRequest, PenstockError, StorageUnavailable
from penstock.model import Door
from penstock.net.http.auth import Authenticator, named_user
from penstock.net.http.heads import MAX_CLIENT_ID_BYTES
from penstock.net.log_throttle import ThrottledLog
from penstock.net.password_checks import PasswordChecks, TooManyWaiting

log = structlog.get_logger("penstock.sidecar")

OPEN_TO_ALL = ("/grpc.health.", "/grpc.reflection.")
"""Path prefixes of methods without authentication."""
NOBODY = Identity(None, "")
KNOWN_AT_ONCE = 16
"""Cached identities of one connection."""

Known = dict[tuple[bytes | None, int], Identity]
"""Identities of one connection, by credentials and by the generation of the files that proved them."""


class CallAuth:
    """Lets calls in, or ends them."""

    def __init__(
        self,
        access: Access,
        loop: AbstractEventLoop,
        checks: PasswordChecks,
        counters: Counters,
        audit: AuditTrail,
        *,
        is_named_by_certificate: bool,
    ) -> None:
        self._credentials = Authenticator(access, checks, is_named_by_certificate=is_named_by_certificate)
        self._access = access
        self._counters = counters
        self._audit = audit
        self._loop = loop
        self._throttled_log = ThrottledLog(log, loop.time)
        self._checks: set[Task[None]] = set()

    @property
    def checking(self) -> int:
        """Number of calls that wait for a password check."""
        return len(self._checks)

    @property
    def is_named_by_certificate(self) -> bool:
        """The name in a client's certificate is its user name."""
        return self._credentials.is_named_by_certificate

    @is_named_by_certificate.setter
    def is_named_by_certificate(self, is_so: bool) -> None:
        self._credentials.is_named_by_certificate = is_so

    @property
    def generation(self) -> int:
        """Increases when every identity has to be checked again."""
        return self._access.generation

    def close(self) -> None:
        """Cancel the checks of calls that wait."""
        for check in list(self._checks):
            check.cancel()

    def admit(self, call: Call, known: Known, begin: Callable[[], None]) -> None:
        """Authenticate a call, then begin it, now or later; or end it.

        Args:
            known: the cache of the connection; empty at first, and not touched elsewhere.
            begin: called with a call whose `identity` is set.
        """
        if call.path.startswith(OPEN_TO_ALL):
            call.identity = NOBODY
            begin()
            return
        try:
            check_client_id(client_id_of(call.metadata))
            authorization = authorization_of(call.metadata)
            identity = self._recall(call, known, authorization)
        except PenstockError as error:
            self._turn_away(call, error)
            return
        if identity is None:
            assert authorization is not None  # without credentials the result is known at once
            self._check(call, known, authorization, begin)
        else:
            call.identity = _named(identity, call)
            begin()

    def _recall(self, call: Call, known: Known, authorization: bytes | None) -> Identity | None:
        key = (authorization, self._access.generation)
        identity = known.get(key)
        if identity is None:
            identity = self._credentials.decide_now(authorization, "", call.peer)
            if identity is not None:
                self._accept(call, known, key, identity)
        return identity

    def _accept(self, call: Call, known: Known, key: tuple[bytes | None, int], identity: Identity) -> None:
        """Remember an identity on its connection."""
        _remember(known, key, identity)
        if identity.user is not None:
            self._audit.record_login(identity.user, Door.SIDECAR, call.peer)

    def _check(self, call: Call, known: Known, authorization: bytes, begin: Callable[[], None]) -> None:
        check = self._loop.create_task(self._verify(call, known, authorization, begin))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)
        call.handler = _Waiting(check)

    async def _verify(
        self, call: Call, known: Known, authorization: bytes, begin: Callable[[], None]
    ) -> None:
        generation = self._access.generation
        try:
            identity = await self._credentials.decide(authorization, "", call.peer)
        except PenstockError as error:
            self._turn_away(call, error)
        except TooManyWaiting:
            refuse(call, StorageUnavailable("too many password checks are waiting; retry later"))
        except Exception:  # an error must neither admit a call nor leave it waiting
            self._throttled_log.write_failure("password not checked", peer=str(call.peer))
            refuse(call, StorageUnavailable("passwords cannot be checked now"))
        else:
            self._accept(call, known, (authorization, generation), identity)
            if not call.is_over:
                call.handler, call.identity = None, _named(identity, call)
                begin()

    def _turn_away(self, call: Call, error: PenstockError) -> None:
        if isinstance(error, BadCredentials):
            self._counters.authentications_failed += 1
            self._audit.record_login(_named_user(call), Door.SIDECAR, call.peer, refusal=str(error))
        self._throttled_log.write("call refused", peer=str(call.peer), reason=str(error))
        refuse(call, error)


class _Waiting(Handler):
    """A call whose password is being checked."""

    __slots__ = ("_check",)

    def __init__(self, check: "Task[None]") -> None:
        self._check = check

    def ended(self, cause: EndCause) -> None:
        """The call was cancelled."""
        self._check.cancel()


def _named_user(call: Call) -> str | None:
    """Return the user that a refused call names; None if it names none."""
    try:
        authorization = authorization_of(call.metadata)
    except BadCredentials:
        return None
    return None if authorization is None else named_user(authorization)


def _remember(known: Known, key: tuple[bytes | None, int], identity: Identity) -> None:
    if len(known) >= KNOWN_AT_ONCE and key not in known:
        known.clear()
    known[key] = identity


def _named(identity: Identity, call: Call) -> Identity:
    client_id = client_id_of(call.metadata)
    return replace(identity, client_id=client_id) if client_id else identity


def client_id_of(metadata: Metadata) -> str:
    """Return the name that a client gives itself; empty if it gives none."""
    return next((value for name, value in metadata if name == "x-client-id" and isinstance(value, str)), "")


def check_client_id(client_id: str) -> None:
    """Check the length of a client's name.

    Raises:
        InvalidRequest: it is too long.
    """
    if len(client_id.encode()) > MAX_CLIENT_ID_BYTES:
        raise InvalidRequest(f"x-client-id has at most {MAX_CLIENT_ID_BYTES} bytes")


def authorization_of(metadata: Metadata) -> bytes | None:
    """Return the credentials of a call as an `Authorization` header; None if there are none.

    Raises:
        BadCredentials: a field given twice, or a name without a password, or the other way round.
    """
    found: dict[str, str] = {}
    for name, value in metadata:
        if name not in ("authorization", "username", "password") or not isinstance(value, str):
            continue
        if name in found:
            raise BadCredentials(f"{name} is there twice")
        found[name] = value
    if "authorization" in found:
        if len(found) > 1:
            raise BadCredentials("there is both authorization and a user name or password")
        return found["authorization"].encode()
    if not found:
        return None
    if len(found) == 1:
        raise BadCredentials("username and password must be given together")
    return b"Basic " + b64encode(f"{found['username']}:{found['password']}".encode())
