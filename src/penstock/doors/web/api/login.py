"""GET /api/v1/me, POST /api/v1/login and /api/v1/logout: the user of a web page.

A page sends user and password once, and the browser keeps a token in a cookie that no script can read. The
password check waits for its turn with those of all doors, and counts against the limits of its address.
"""

import asyncio
from typing import TYPE_CHECKING

import structlog
from msgspec import Struct, json
from msgspec.json import Decoder

from penstock.core.access.access import ADMIN_FILTER
from penstock.core.access.identity import Identity
from penstock.doors.web.context import Web
from penstock.doors.web.publishing import decode
from penstock.errors import BadCredentials, Conflict, InvalidRequest, PenstockError, QuotaExceeded
from penstock.model import Door
from penstock.net.http.auth import QUIET_CHALLENGE, REFUSED, login_cookie, no_login_cookies
from penstock.net.http.errors import RETRY_AFTER_S, response_for, response_to
from penstock.net.http.request import Request
from penstock.net.http.routes import Routes
from penstock.net.log_throttle import ThrottledLog, shortened
from penstock.net.password_checks import TooManyWaiting

if TYPE_CHECKING:
    from fastapi import APIRouter

ME, LOGIN, LOGOUT = "/api/v1/me", "/api/v1/login", "/api/v1/logout"
MAX_BODY_BYTES = 16 * 1024
UNCACHED = ("Cache-Control", "no-store")
log = structlog.get_logger("penstock.web")


class RightsShape(Struct):
    """Summary of the caller's rights."""

    admin: bool
    """It may see clients, figures and the log."""
    manage: bool
    """It may disconnect clients."""
    publish: bool
    """It may publish to some topic."""
    subscribe: bool
    """It may read some topic."""


class Me(Struct, kw_only=True):
    """The caller, and the server as it sees it."""

    user: str | None
    is_anonymous: bool
    needs_login: bool
    """The server accepts no anonymous clients."""
    can_login: bool
    """The server has users with passwords."""
    rights: RightsShape
    has_admin_calls: bool
    """The port of this response serves the calls of administrators."""
    version: str
    build: str
    """`compiled` or `pure`."""
    node_id: str
    doors: dict[str, list[str]]
    """Addresses of the open doors by name, for callers that may see clients and figures."""


class NewLogin(Struct, forbid_unknown_fields=True):
    """User and password."""

    user: str
    password: str


_new_login = Decoder(NewLogin)


class LoginCalls:
    """Logs users in and out, and responds to them.

    Args:
        web: with logins and password checks; without them, no login is possible.
    """

    def __init__(self, web: Web) -> None:
        self._web = web
        self._throttled_log = ThrottledLog(log, web.clock.monotonic)
        self._tasks: set[asyncio.Task[None]] = set()

    def show(self, request: Request) -> None:
        """Respond with the caller."""
        request.respond(200, json.encode(self._describe(request, request.identity)), headers=[UNCACHED])

    def log_in(self, request: Request) -> None:
        """Check user and password; the response comes later.

        Raises:
            InvalidRequest: not a user and a password.
            Conflict: the server has no users.
        """
        given = decode(_new_login, request.body)
        if not self._web.broker.access.has_passwords or self._web.logins is None:
            raise Conflict("this server has no users with passwords: no login is needed")
        task = asyncio.get_running_loop().create_task(self._check(request, given))

        def give_up() -> None:
            task.cancel()

        request.on_disconnect = give_up
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def log_out(self, request: Request) -> None:
        """End the login of the cookie, if there is one, and delete the cookie."""
        logins, headers = self._web.logins, [UNCACHED]
        if logins is not None:
            if request.login is not None:
                logins.end(request.login)
            headers += no_login_cookies(logins.cookie)
        request.respond(204, headers=headers)

    async def _check(self, request: Request, given: NewLogin) -> None:
        checks = self._web.password_checks
        assert checks is not None
        try:
            if await checks.verify(given.user, given.password.encode(), request.peer.host):
                self._admit(request, given.user)
            else:
                self._refuse(request, given.user)
        except QuotaExceeded as error:
            request.fail(error)
        except TooManyWaiting:
            status, body, media = response_for(
                503, "too many password checks are waiting", "too-busy", request.path
            )
            request.respond(status, body, content_type=media, headers=[("Retry-After", str(RETRY_AFTER_S))])
        except Exception:  # an error must neither admit a client nor leave it waiting
            log.exception("password not checked", peer=str(request.peer))
            request.fail_internally()

    def _admit(self, request: Request, user: str) -> None:
        logins = self._web.logins
        assert logins is not None
        if request.is_disconnected:
            return
        if request.login is not None:
            logins.end(request.login)
        token = logins.begin(user)
        cookie = login_cookie(logins.cookie, token, logins.lifetime_s, is_secure=request.is_encrypted)
        self._throttled_log.write("logged in", user=user, peer=str(request.peer))
        self._web.broker.audit.record_login(user, Door.WEB, request.peer)
        me = self._describe(request, Identity(user, request.client_id))
        request.respond(200, json.encode(me), headers=[UNCACHED, cookie])

    def _refuse(self, request: Request, user: str) -> None:
        self._web.broker.counters.authentications_failed += 1
        self._throttled_log.write("login refused", user=shortened(user), peer=str(request.peer))
        self._web.broker.audit.record_login(
            shortened(user), Door.WEB, request.peer, refusal="wrong credentials"
        )
        status, body, media = response_to(BadCredentials(REFUSED), request.path)
        request.respond(
            status, body, content_type=media, headers=[UNCACHED, ("WWW-Authenticate", QUIET_CHALLENGE)]
        )

    def _describe(self, request: Request, who: Identity) -> Me:
        web, access = self._web, self._web.broker.access
        user, rights = access.proven_user(who), access.rights_of(who)
        is_admin = access.may_subscribe(who, ADMIN_FILTER)
        return Me(
            user=user,
            is_anonymous=user is None,
            needs_login=not access.verify_now(None, None),
            can_login=access.has_passwords and web.logins is not None,
            rights=RightsShape(
                admin=is_admin,
                manage=access.may_publish(who, ADMIN_FILTER),
                publish=rights.publish,
                subscribe=rights.subscribe,
            ),
            has_admin_calls=request.has_admin,
            version=web.version,
            build=web.build,
            node_id=web.node_id,
            doors=web.addresses() if is_admin else {},
        )


def add_hot_routes(table: Routes, web: Web) -> None:
    """Let the listener log users in itself: a client has no credentials before."""
    calls = LoginCalls(web)
    table.add("GET", ME, calls.show, max_body_bytes=0)
    table.add("POST", LOGIN, calls.log_in, is_open=True, max_body_bytes=MAX_BODY_BYTES)
    table.add("POST", LOGOUT, calls.log_out, is_open=True, max_body_bytes=MAX_BODY_BYTES)


def routes(web: Web) -> "APIRouter":
    """The same for the application, which describes them."""
    from fastapi import APIRouter, Response  # noqa: PLC0415 - slow to load, and not needed by the rest
    from fastapi import Request as AppRequest  # noqa: PLC0415

    from penstock.doors.web.support.requests import respond_by, takes_json  # noqa: PLC0415
    from penstock.doors.web.support.responses import describe  # noqa: PLC0415

    router, calls = APIRouter(tags=["about"]), LoginCalls(web)
    refusals: tuple[type[PenstockError], ...] = (InvalidRequest, BadCredentials, Conflict, QuotaExceeded)

    @router.get(ME, summary="The caller, and its rights", responses=describe(Me))
    async def me(request: AppRequest) -> Response:
        return await respond_by(calls.show, request)

    @router.post(
        LOGIN,
        summary="Log in: user and password for a cookie",
        description="The response sets a cookie that stands for the user in requests of pages of this "
        "server, until logout, `web.login_s`, `web.login_idle_s` without a request, or a new password.",
        responses=describe(Me, *refusals),
        openapi_extra=takes_json(NewLogin, {"user": "ada", "password": "countess"}) | {"security": []},
    )
    async def log_in(request: AppRequest) -> Response:
        return await respond_by(calls.log_in, request)

    @router.post(
        LOGOUT,
        status_code=204,
        response_class=Response,
        summary="Log out: end the login of the cookie",
        responses=describe(None, status=204, text="There is no login any more."),
        openapi_extra={"security": []},
    )
    async def log_out(request: AppRequest) -> Response:
        return await respond_by(calls.log_out, request)

    return router
