"""The console is at the server: for browsers at the root, for everyone below /ui, at every port."""

from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from penstock.app import Server
from penstock.cli.commands.serve import banner
from penstock.core.settings import AccessSettings
from penstock.doors.web.site.console import PACKAGE, TYPES, load_files
from penstock.net.http.settings import HttpSettings
from tests.doors.serving import Start, client_of

INDEX = files(PACKAGE).joinpath("index.html").read_bytes()
JAVA = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"
"""Of `HttpURLConnection`, unless a program says otherwise."""
FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "is_page"),
    [
        (FIREFOX, True),
        (CHROME, True),
        ("Text/HTML", True),
        ("text/html;q=0.9, application/json;q=0.8", True),
        (JAVA, False),
        ("*/*", False),  # curl, Go, Python
        ("", False),
        (None, False),
        ("application/json", False),
        ("application/json, text/plain, */*", False),  # axios
        ("application/json, text/html", False),  # as well: then a program is meant
        ("text/html;q=0.1, */*", False),
        ("text/*", False),
        ("text/html;q=0", False),
    ],
)
async def test_the_root_is_a_page_for_browsers_and_json_for_programs(
    server: Server, accept: str | None, is_page: bool
) -> None:
    async with client_of(server) as http:
        del http.headers["accept"]
        answer = await http.get("/", headers={} if accept is None else {"Accept": accept})
        head = await http.head("/", headers={} if accept is None else {"Accept": accept})
    assert answer.status_code == head.status_code == 200
    assert (answer.content == INDEX) is is_page
    assert answer.headers["content-type"] == ("text/html; charset=utf-8" if is_page else "application/json")
    assert "accept" in answer.headers["vary"].lower()
    assert head.headers["content-length"] == answer.headers["content-length"]
    assert head.content == b""
    if not is_page:
        assert answer.json()["hello"] == "This is the iPubSub service"


async def test_every_file_is_served_with_its_type_and_a_policy(http: httpx.AsyncClient) -> None:
    for path in load_files():
        answer = await http.get(f"/ui/{path}")
        assert (answer.status_code, answer.content) == (200, files(PACKAGE).joinpath(path).read_bytes())
        assert answer.headers["content-type"] == TYPES[path.rpartition(".")[2]]
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await http.get("/ui/")).content == (await http.get("/ui")).content == INDEX


async def test_a_browser_that_has_a_file_is_not_sent_it_again(http: httpx.AsyncClient) -> None:
    for path in ("/", "/ui/index.html"):
        first = await http.get(path, headers={"Accept": FIREFOX})
        again = await http.get(
            path, headers={"Accept": FIREFOX, "If-None-Match": f"W/{first.headers['etag']}"}
        )
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])


@pytest.mark.parametrize(
    "path", ["/ui/__init__.py", "/ui/../__init__.py", "/ui/%2e%2e/app.py", "/ui/none.js"]
)
async def test_nothing_else_of_the_package_is_served(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code in (400, 404)


async def test_the_files_are_only_read(http: httpx.AsyncClient) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert (await http.request(method, "/ui/index.html")).status_code == 405
    answer = await http.request("POST", "/", headers={"Accept": FIREFOX})
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


async def test_the_files_need_no_credentials_and_the_calls_do(start: Start, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    server = await start(access=AccessSettings(password_file=str(tmp_path / "passwords")))
    async with client_of(server) as http:
        assert (await http.get("/", headers={"Accept": FIREFOX})).content == INDEX
        assert (await http.get("/ui/")).status_code == 200
        assert (await http.get("/")).status_code == 401
        assert (await http.get("/api/v1/me")).status_code == 401


# The admin port


@pytest.fixture
async def apart(start: Start) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Clients of the main port and of the admin port of a server."""
    server = await start(http=HttpSettings(port=(0,), admin_port=0))
    main, admin = (f"http://127.0.0.1:{port}" for port in server.http.ports())
    async with client_of(server, base_url=main) as first, client_of(server, base_url=admin) as second:
        yield first, second


async def test_the_console_is_at_the_admin_port_with_all_of_its_calls(
    apart: tuple[httpx.AsyncClient, httpx.AsyncClient],
) -> None:
    _, admin = apart
    assert (await admin.get("/", headers={"Accept": FIREFOX})).content == INDEX
    calls = ("me", "topics", "topics/tree", "retained", "clients", "slow", "drops", "config", "history")
    for call in calls:
        assert (await admin.get(f"/api/v1/{call}")).status_code == 200, call
    published = await admin.post("/api/v1/publish", json={"topic": "a", "data": 1, "retain": True})
    assert published.status_code == 200
    assert (await admin.delete("/api/v1/retained/a")).status_code == 204
    assert (await admin.get("/api/v1/me")).json()["has_admin_calls"] is True
    assert (await admin.get("/ws")).status_code == 426  # it asks for an upgrade
    for elsewhere in ("/", "/topics", "/api/v1/streams/receive", "/publish"):
        assert (await admin.get(elsewhere)).status_code == 404, elsewhere


async def test_the_main_port_has_the_console_and_says_what_it_has_not(
    apart: tuple[httpx.AsyncClient, httpx.AsyncClient],
) -> None:
    main, _ = apart
    assert (await main.get("/", headers={"Accept": FIREFOX})).content == INDEX
    assert (await main.get("/api/v1/me")).json()["has_admin_calls"] is False
    assert (await main.get("/api/v1/topics/tree")).status_code == 200
    assert (await main.get("/api/v1/history")).status_code == 404


async def test_the_banner_names_the_console_where_all_of_it_is(start: Start) -> None:
    together = await start()
    assert f"console    http://127.0.0.1:{together.http.ports()[0]}/\n" in banner(together)
    apart = await start(http=HttpSettings(port=(0,), admin_port=0))
    assert f"console    http://127.0.0.1:{apart.http.ports()[1]}/\n" in banner(apart)
    alone = await start(http=HttpSettings(port=(), admin_port=0))
    assert f"console    http://127.0.0.1:{alone.http.ports()[0]}/\n" in banner(alone)
    assert "/ws" not in banner(alone)
