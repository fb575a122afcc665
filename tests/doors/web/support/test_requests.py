"""What every request of the application goes through."""

from typing import NoReturn

import httpx
import pytest

from penstock.app import Server


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a thread was asked for")


@pytest.mark.parametrize("path", ["/api/v1", "/api/v1/topics", "/api/v1/clients", "/cluster/status"])
async def test_nobody_needs_a_thread_to_find_out_who_asks_and_for_what(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("anyio.to_thread.run_sync", refuse)
    assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/api/v1/topics?serach=a", "GET /api/v1/topics has no parameter 'serach'"),
        ("/api/v1/topics/a/messages?first=1", "GET /api/v1/topics/{topic}/messages has no parameter 'first'"),
        ("/api/v1/topics?limit=1&limit=2", "'limit' was given 2 times"),
        ("/api/v1?x", "GET /api/v1 has no parameter 'x'"),
    ],
)
async def test_a_parameter_that_would_be_overlooked_is_named(
    http: httpx.AsyncClient, path: str, detail: str
) -> None:
    problem = (await http.get(path)).json()
    assert (problem["status"], problem["code"], problem["detail"]) == (400, "invalid-request", detail)


@pytest.mark.parametrize("query", ["search=%ff", "search=a%C3", "%ff=1"])
async def test_a_query_that_is_no_text_is_refused(http: httpx.AsyncClient, query: str) -> None:
    url = httpx.URL(http.base_url, path="/api/v1/topics", query=query.encode())
    problem = (await http.get(url)).json()
    assert (problem["status"], problem["code"]) == (400, "invalid-request")
    assert "UTF-8" in problem["detail"]


@pytest.mark.parametrize("value", ["1_0", "%20100", "100%20", "%2B5", "1e2", "10.0", "", "0x10", "%D9%A3"])
async def test_a_number_is_written_in_digits(http: httpx.AsyncClient, value: str) -> None:
    problem = (await http.get(f"/api/v1/topics?limit={value}")).json()
    assert (problem["status"], problem["code"]) == (400, "invalid-request")
    assert "limit" in problem["detail"]
    assert (await http.get("/api/v1/topics?limit=010")).status_code == 200


async def test_a_list_may_be_given_more_than_once(
    stored_server: Server, stored_http: httpx.AsyncClient
) -> None:
    stored_server.broker.publish_server("a", b"1")
    answer = await stored_http.get("/api/v1/log/ranges?filter=a&filter=b")
    assert answer.status_code == 200
