"""Logins of web pages: a cookie for a password, which counts for pages of the same origin and nobody else."""

import asyncio
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from websockets.exceptions import InvalidStatus

from penstock.app import Server
from penstock.core.settings import AccessSettings
from penstock.doors.web.settings import WebSettings
from penstock.net.address_limits import AddressLimitSettings
from penstock.net.http.settings import HttpSettings
from tests.doors.serving import Start, client_of, port_of
from tests.doors.web.socket.talking import Talker
from tests.support.clock import ManualClock
from tests.support.waiting import until

QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
CONSOLE = {"X-Requested-With": "penstock-console"}
ANN = {"user": "ann", "password": "one"}
RULES = "user ann\nboth a/#\nuser root\nboth #\nboth $SYS/#\n"


def write_users(folder: Path, **users: str) -> str:
    file = folder / "passwords"
    file.write_text("".join(f"{user}:{QUICK.hash(word)}\n" for user, word in users.items()))
    return str(file)


@pytest.fixture
async def guarded(start: Start, tmp_path: Path) -> Server:
    """A server with two users, and without anonymous clients."""
    (tmp_path / "acl").write_text(RULES)
    passwords = write_users(tmp_path, ann="one", root="two")
    return await start(access=AccessSettings(password_file=passwords, acl_file=str(tmp_path / "acl")))


@pytest.fixture
async def page(guarded: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A page of the console before its login."""
    async with client_of(guarded, headers=CONSOLE) as http:
        yield http


async def log_in(http: httpx.AsyncClient, **other: str) -> httpx.Response:
    answer = await http.post("/api/v1/login", json={**ANN, **other})
    assert answer.status_code == 200, answer.text
    return answer


async def cookie_of(server: Server) -> str:
    """The cookie of a new login, as a browser would send it."""
    async with client_of(server) as http:
        await log_in(http)
        return "; ".join(f"{name}={value}" for name, value in http.cookies.items())


# The caller


async def test_on_an_open_server_everyone_may_do_everything(http: httpx.AsyncClient) -> None:
    me = (await http.get("/api/v1/me")).json()
    assert (me["user"], me["is_anonymous"], me["needs_login"], me["can_login"]) == (None, True, False, False)
    assert me["rights"] == {"admin": True, "manage": True, "publish": True, "subscribe": True}
    assert me["doors"]["http"] == [str(http.base_url).rstrip("/")]
    assert (await http.get("/api/v1/me", auth=("ann", "x"))).json()["user"] is None  # which proves nothing
    assert (await http.post("/api/v1/login", json=ANN)).json()["code"] == "conflict"


async def test_rights_are_those_of_the_user(guarded: Server) -> None:
    async with client_of(guarded, auth=("ann", "one")) as http:
        me = (await http.get("/api/v1/me")).json()
        assert (me["user"], me["is_anonymous"], me["needs_login"], me["can_login"]) == (
            "ann",
            False,
            True,
            True,
        )
        assert me["rights"] == {"admin": False, "manage": False, "publish": True, "subscribe": True}
    async with client_of(guarded, auth=("root", "two")) as http:
        assert (await http.get("/api/v1/me")).json()["rights"]["manage"] is True


async def test_addresses_of_the_doors_are_for_administrators(guarded: Server) -> None:
    for user, is_admin in (("ann", False), ("root", True)):
        async with client_of(guarded, auth=(user, "two" if is_admin else "one")) as http:
            me = (await http.get("/api/v1/me")).json()
        assert (me["rights"]["admin"], bool(me["doors"])) == (is_admin, is_admin)


async def test_logins_of_pages_are_in_the_audit_trail(guarded: Server, page: httpx.AsyncClient) -> None:
    recorded: list[tuple[str, object, object]] = []
    guarded.broker.audit.configure(
        lambda event, details: recorded.append((event, details["user"], details.get("reason")))
    )
    assert (await page.post("/api/v1/login", json={**ANN, "password": "no"})).status_code == 401
    await log_in(page)
    assert recorded == [("login refused", "ann", "wrong credentials"), ("logged in", "ann", None)]


async def test_a_page_gets_no_dialog_and_other_clients_their_challenge(guarded: Server) -> None:
    async with client_of(guarded) as http:
        answer = await http.get("/api/v1/me", headers=CONSOLE)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="penstock"')
        assert answer.headers["content-type"] == "application/problem+json"
        assert (await http.get("/api/v1/me")).headers["www-authenticate"].startswith("Basic ")


# Logging in and out


async def test_a_login_stands_for_its_user_in_every_call(page: httpx.AsyncClient) -> None:
    answer = await log_in(page)
    assert (answer.json()["user"], answer.headers["cache-control"]) == ("ann", "no-store")
    assert (await page.get("/api/v1/me")).json() == answer.json()
    assert (await page.post("/api/v1/publish", json={"topic": "a/b", "data": 1})).status_code == 200
    assert (await page.post("/api/v1/publish", json={"topic": "b", "data": 1})).status_code == 403
    assert (await page.get("/api/v1/clients")).status_code == 403
    assert (await page.get("/api/v1/topics")).json()["matching"] == 1


async def test_the_cookie_is_for_this_site_and_no_script(page: httpx.AsyncClient) -> None:
    answer = await log_in(page)
    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert cookie.key.startswith("penstock_token_")
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
    assert (cookie["max-age"], cookie["secure"], cookie["domain"]) == (str(12 * 3600), "", "")


async def test_a_cookie_from_behind_a_proxy_with_tls_is_secure(guarded: Server) -> None:
    host = f"127.0.0.1:{port_of(guarded, 'http')}"
    async with client_of(guarded) as http:
        answer = await http.post("/api/v1/login", json=ANN, headers={"Origin": f"https://{host}"})
        assert "; Secure" in answer.headers["set-cookie"]
        (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
        mine = {"Cookie": f"{cookie.key}={cookie.value}"}  # as the proxy passes it on; reads have no Origin
        assert (await http.get("/api/v1/me", headers=mine)).json()["user"] == "ann"
        plain = (await http.post("/api/v1/login", json=ANN)).headers["set-cookie"]
        assert cookie.key not in plain, "browsers let no plain connection replace it"


async def test_logout_ends_the_login_and_deletes_the_cookie(page: httpx.AsyncClient) -> None:
    await log_in(page)
    cookies = dict(page.cookies)
    answer = await page.post("/api/v1/logout")
    assert (answer.status_code, answer.content, dict(page.cookies)) == (204, b"", {})
    page.cookies.update(cookies)  # somebody has kept it
    assert (await page.get("/api/v1/me")).status_code == 401
    assert (await page.post("/api/v1/logout")).status_code == 204


async def test_another_login_of_the_same_browser_replaces_the_first(
    guarded: Server, page: httpx.AsyncClient
) -> None:
    await log_in(page)
    first = dict(page.cookies)
    assert (await log_in(page, user="root", password="two")).json()["user"] == "root"
    assert (await page.get("/api/v1/me")).json()["user"] == "root"
    assert len(guarded._logins) == 1
    page.cookies.clear()
    page.cookies.update(first)
    assert (await page.get("/api/v1/me")).status_code == 401


async def test_authorization_comes_before_the_cookie(page: httpx.AsyncClient) -> None:
    await log_in(page)
    assert (await page.get("/api/v1/me", auth=("root", "two"))).json()["user"] == "root"
    assert (await page.get("/api/v1/me", auth=("root", "wrong"))).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({**ANN, "password": "two"}, 401, "bad-credentials"),
        ({**ANN, "password": ""}, 401, "bad-credentials"),
        ({**ANN, "user": "nobody"}, 401, "bad-credentials"),
        ({**ANN, "user": "a\0n"}, 401, "bad-credentials"),
        ({"user": "ann"}, 400, "invalid-request"),
        ({**ANN, "more": 1}, 400, "invalid-request"),
        ([], 400, "invalid-request"),
        ({**ANN, "password": "x" * 20_000}, 413, "too-large"),
    ],
)
async def test_what_is_no_login_sets_no_cookie(
    page: httpx.AsyncClient, guarded: Server, body: Any, status: int, code: str
) -> None:
    answer = await page.post("/api/v1/login", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "set-cookie" not in answer.headers
    assert "Basic" not in answer.headers.get("www-authenticate", "")
    assert len(guarded._logins) == 0
    assert guarded.broker.counters.authentications_failed == (status == 401)


async def test_wrong_logins_count_against_the_limits_of_their_address(start: Start, tmp_path: Path) -> None:
    limits = AddressLimitSettings(failures_per_address=0.001, failure_burst_per_address=3)
    access = AccessSettings(password_file=write_users(tmp_path, ann="one"))
    server = await start(access=access, connections=limits)
    async with client_of(server) as http:
        for number in range(3):
            wrong = await http.post("/api/v1/login", json={**ANN, "password": f"guess {number}"})
            assert wrong.status_code == 401
        refused = await http.post("/api/v1/login", json=ANN)
        assert (refused.status_code, refused.json()["code"]) == (429, "quota-exceeded")
        assert "retry-after" in refused.headers
        assert (await http.get("/api/v1/topics", auth=("ann", "one"))).status_code == 429  # one limit for all


async def test_a_client_that_hangs_up_during_the_check_gets_no_login(
    guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, decided = guarded._password_checks, Event()
    monkeypatch.setattr(guarded._access, "verify", lambda user, password: decided.wait(20))
    async with client_of(guarded) as http:
        login = asyncio.create_task(http.post("/api/v1/login", json=ANN))
        await until(lambda: checks.running == 1, "no check has begun")
        login.cancel()
    await until(lambda: not guarded.http.connections, "the connection is still open")
    decided.set()
    await until(lambda: not checks.running, "the check has not ended")
    assert len(guarded._logins) == 0


# How a login ends


async def test_a_login_ends_without_use(guarded: Server, page: httpx.AsyncClient) -> None:
    clock = guarded._logins._clock = ManualClock()
    await log_in(page)
    clock.advance(1_799)
    assert (await page.get("/api/v1/me")).status_code == 200
    clock.advance(1_800)
    ended = await page.get("/api/v1/me")
    assert (ended.status_code, ended.json()["detail"]) == (401, "your login has ended: log in again")
    assert ended.headers["www-authenticate"].startswith("Bearer")
    assert dict(page.cookies) == {}  # the response has deleted it


async def test_a_login_ends_after_its_time_however_much_it_is_used(start: Start, tmp_path: Path) -> None:
    access = AccessSettings(password_file=write_users(tmp_path, ann="one"))
    server = await start(access=access, web=WebSettings(login_s=100, login_idle_s=90))
    clock = server._logins._clock = ManualClock()
    async with client_of(server, headers=CONSOLE) as page:
        assert "Max-Age=100;" in (await log_in(page)).headers["set-cookie"]
        clock.advance(80)
        assert (await page.get("/api/v1/me")).status_code == 200
        clock.advance(20)
        assert (await page.get("/api/v1/me")).status_code == 401


@pytest.mark.parametrize("users", [{"ann": "other", "root": "two"}, {"root": "two"}])
async def test_a_login_ends_with_another_password_and_with_its_user(
    guarded: Server, page: httpx.AsyncClient, tmp_path: Path, users: dict[str, str]
) -> None:
    await log_in(page)
    assert guarded.reload() is not None
    assert (await page.get("/api/v1/me")).status_code == 200
    write_users(tmp_path, **users)
    assert guarded.reload() is not None
    assert (await page.get("/api/v1/me")).status_code == 401


async def test_a_login_of_another_server_is_none_here(start: Start, tmp_path: Path) -> None:
    access = AccessSettings(password_file=write_users(tmp_path, ann="one"), allow_anonymous=True)
    first, second = await start(access=access), await start(access=access)
    async with client_of(second, headers={"Cookie": await cookie_of(first)}) as page:
        assert (await page.get("/api/v1/me")).json()["is_anonymous"] is True


# Requests of other pages

OWN, OTHER = "http://127.0.0.1:{port}", "http://127.0.0.1:3000"


@pytest.mark.parametrize(
    ("headers", "reads", "changes"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True, True),
        ({"Sec-Fetch-Site": "none"}, True, False),
        ({"Sec-Fetch-Site": "same-site"}, False, False),
        ({"Sec-Fetch-Site": "cross-site"}, False, False),
        ({"Sec-Fetch-Site": "same-site", **CONSOLE}, False, False),
        ({"Origin": OWN}, True, True),
        ({"Origin": OTHER}, False, False),
        ({"Origin": OTHER, **CONSOLE}, False, False),
        ({"Origin": "null"}, False, False),
        ({"Origin": OTHER, "Sec-Fetch-Site": "same-site"}, False, False),
        (CONSOLE, True, True),
        ({"X-Requested-With": "XMLHttpRequest"}, True, False),
        ({}, True, False),
    ],
)
async def test_the_cookie_counts_for_pages_of_this_origin_only(
    guarded: Server, headers: dict[str, str], reads: bool, changes: bool
) -> None:
    port = str(port_of(guarded, "http"))
    sent = {name: value.replace("{port}", port) for name, value in headers.items()}
    async with client_of(guarded, headers={"Cookie": await cookie_of(guarded), **sent}) as http:
        assert (await http.get("/api/v1/topics")).status_code == (200 if reads else 401)
        published = await http.post("/api/v1/publish", json={"topic": "a/b", "data": 1})
        assert published.status_code in ((200,) if changes else (401, 403))
        removed = await http.delete("/api/v1/retained?topic=a/none")
        assert removed.status_code in ((404,) if changes else (401, 403))
        taken = await http.get("/api/v1/streams/receive?stream=a/b&timeout=0")
        assert (taken.status_code in (401, 403)) is not changes
    assert guarded.broker.counters.published == changes


async def test_a_listed_origin_does_not_get_the_cookie_of_this_one(start: Start, tmp_path: Path) -> None:
    access = AccessSettings(password_file=write_users(tmp_path, ann="one"))
    server = await start(access=access, http=HttpSettings(port=(0,), cors_origins=(OTHER,)))
    headers = {"Cookie": await cookie_of(server), "Origin": OTHER}
    async with client_of(server, headers=headers) as http:
        answer = await http.post("/api/v1/publish", json={"topic": "a", "data": 1})
        assert answer.status_code == 401
        assert "X-Requested-With" in answer.json()["detail"]
        allowed = await http.get("/api/v1/topics", auth=("ann", "one"))
        assert allowed.status_code == 200
        assert "access-control-allow-credentials" not in allowed.headers


async def test_no_other_page_can_log_a_browser_in(guarded: Server) -> None:
    async with client_of(guarded) as http:
        for headers in ({"Origin": OTHER}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
            answer = await http.post("/api/v1/login", json=ANN, headers=headers)
            assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


async def test_cookies_are_found_among_others_and_in_parts(guarded: Server) -> None:
    cookie = await cookie_of(guarded)
    name = cookie.partition("=")[0]
    async with client_of(guarded) as http:
        for cookies in ([f"a=b; {cookie};c=d"], ["a=b", cookie], [f"x{name}=1;{cookie}"]):
            headers = [("Cookie", each) for each in cookies]
            assert (await http.get("/api/v1/me", headers=headers)).status_code == 200, cookies
        for cookies in ([f"{name}=" + "x" * 43], [f"{name}="], [name], [cookie.upper()], ["=;;= ; ="]):
            headers = [("Cookie", each) for each in cookies]
            assert (await http.get("/api/v1/me", headers=headers)).status_code == 401, cookies


# Streams


async def test_a_page_opens_a_websocket_with_its_cookie(guarded: Server) -> None:
    cookie, origin = await cookie_of(guarded), f"http://127.0.0.1:{port_of(guarded, 'http')}"
    async with Talker(guarded, additional_headers={"Cookie": cookie}, origin=origin):
        (session,) = guarded.broker.sessions.values()
        assert session.identity.user == "ann"


@pytest.mark.parametrize("origin", [None, OTHER])
async def test_no_other_page_opens_a_websocket_with_it(guarded: Server, origin: Any) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with Talker(guarded, additional_headers={"Cookie": await cookie_of(guarded)}, origin=origin):
            pass
    assert refused.value.response.status_code in (401, 403)


async def test_a_websocket_with_a_login_that_has_ended_is_refused(guarded: Server) -> None:
    cookie, origin = await cookie_of(guarded), f"http://127.0.0.1:{port_of(guarded, 'http')}"
    async with client_of(guarded, headers={"Cookie": cookie, **CONSOLE}) as http:
        await http.post("/api/v1/logout")
    with pytest.raises(InvalidStatus) as refused:
        async with Talker(guarded, additional_headers={"Cookie": cookie}, origin=origin):
            pass
    assert refused.value.response.status_code == 401


async def test_a_page_follows_events_with_its_cookie(guarded: Server) -> None:
    headers = {"Cookie": await cookie_of(guarded), "Accept": "text/event-stream"}
    async with client_of(guarded, headers=headers) as http:
        async with http.stream("GET", "/api/v1/events?filter=a/%23") as events:
            assert events.status_code == 200
        async with http.stream("GET", "/api/v1/events?filter=b") as events:
            assert events.status_code == 403
        async with http.stream(
            "GET", "/api/v1/events?filter=a/b", headers={"Sec-Fetch-Site": "same-site"}
        ) as no:
            assert no.status_code == 401
