"""The client for web pages is at the server, and fit for npm."""

import json
from pathlib import Path

import httpx
import pytest

from penstock import __version__
from penstock.core.settings import AccessSettings
from penstock.doors.web.site.script import FILE
from tests.doors.serving import Start, client_of

PACKAGE = FILE.parent / "package.json"


async def test_the_script_comes_as_it_is(http: httpx.AsyncClient) -> None:
    answer = await http.get("/penstock.js")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.content == FILE.read_bytes()


@pytest.mark.parametrize("known", ["{}", 'W/"other", W/{}', "*"])
async def test_a_browser_that_has_it_is_not_sent_it_again(http: httpx.AsyncClient, known: str) -> None:
    tag = (await http.get("/penstock.js")).headers["etag"]
    answer = await http.get("/penstock.js", headers={"If-None-Match": known.format(tag)})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    other = await http.get("/penstock.js", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


async def test_there_is_nothing_but_to_get_it(http: httpx.AsyncClient) -> None:
    head = await http.head("/penstock.js")
    assert (head.status_code, int(head.headers["content-length"])) == (200, FILE.stat().st_size)
    assert (await http.post("/penstock.js")).status_code == 405


async def test_it_needs_no_credentials(start: Start, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    server = await start(access=AccessSettings(password_file=str(tmp_path / "passwords")))
    async with client_of(server) as http:
        assert (await http.get("/penstock.js")).status_code == 200
        assert (await http.get("/")).status_code == 401


def test_the_package_for_npm_is_of_this_version_and_complete() -> None:
    package = json.loads(PACKAGE.read_text(encoding="utf-8"))
    assert package["version"] == __version__
    assert package["files"] == [FILE.name]
    assert {package["main"], package["exports"]} == {f"./{FILE.name}"}
    assert (PACKAGE.parent / "README.md").exists()


def test_the_script_depends_on_nothing() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("import ")] == []
