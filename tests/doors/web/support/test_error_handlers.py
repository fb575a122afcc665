"""A mistake of ours tells the caller nothing but that there was one, and the connection goes on."""

import httpx
import pytest
from structlog.testing import capture_logs

from penstock.app import Server

SECRET = "the inside of the server"


def break_it(*_: object) -> None:
    raise RuntimeError(SECRET)


async def test_a_mistake_below_the_api_is_a_problem(
    server: Server, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.broker.slow_consumers, "clients", break_it)
    with capture_logs() as logged:
        answer = await http.get("/api/v1/slow")
    assert [(event["event"], event["path"]) for event in logged] == [("request failed", "/api/v1/slow")]
    assert SECRET in str(logged[0]["exc_info"])
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.headers["content-type"] == "application/problem+json"
    assert SECRET not in answer.text and "Traceback" not in answer.text
    monkeypatch.undo()
    assert (await http.get("/api/v1/slow")).status_code == 200


async def test_a_mistake_elsewhere_is_told_as_those_callers_know_it(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.doors.web.admin.health.cluster_status_of", break_it)
    with capture_logs() as logged:
        answer = await http.get("/cluster/status")
    assert [event["event"] for event in logged] == ["request failed"]
    assert (answer.status_code, answer.json()) == (500, {"detail": "Internal server error"})


async def test_parameters_elsewhere_are_refused_as_those_callers_know_it(http: httpx.AsyncClient) -> None:
    answer = await http.get("/cluster/status", params={"x": "y"})
    assert answer.status_code == 400
    assert set(answer.json()) == {"detail"}


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/topics", "GET, HEAD, POST"),
        ("/topics/a", "DELETE"),
        ("/api/v1/log/holds/h", "DELETE, PUT"),
        ("/api/v1/log/holds/h/renew", "POST"),
        ("/api/v1/stage/commit", "POST"),
    ],
)
async def test_a_method_that_is_not_offered_is_answered_with_all_that_are(
    http: httpx.AsyncClient, path: str, methods: str
) -> None:
    answer = await http.patch(path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, methods)
    assert (await http.options(path)).headers["Allow"] == f"{methods}, OPTIONS"
