"""The application behind the listener: when it is loaded, what it is told, and what its mistakes cost."""

import asyncio
import re
import threading
from typing import Any

import pytest

from tests.net.http.serving import House, get, post, request
from tests.support.waiting import until


async def test_it_is_loaded_once_in_a_thread_and_requests_wait_for_it(house: House) -> None:
    may_load, threads = threading.Event(), []

    def load() -> Any:
        threads.append(threading.current_thread())
        may_load.wait(20)
        return house.app

    await house.open(load_app=load)
    peer, other = await house.connect(), await house.connect()
    await peer.send(get("/app/1") + get("/hot"))
    assert (await other.ask(get("/hot"))).status == 200
    await until(lambda: threads, "no thread was started", every_s=0)
    may_load.set()
    assert (await peer.answer()).json()["path"] == "/app/1"
    assert (await peer.answer()).json()["hot"] == "/hot"
    assert (await other.ask(get("/app/2"))).status == 200
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_it_is_loaded_though_nobody_asks(house: House) -> None:
    await house.open()
    await until(lambda: house.door.application.is_ready, "the application is not ready", every_s=0.001)
    assert house.loads == 1


async def test_if_it_cannot_be_loaded_hot_routes_are_served_all_the_same(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    def load() -> Any:
        raise ImportError("no such thing")

    await house.open(load_app=load)
    peer = await house.connect()
    answer = await peer.ask(get("/api/v1/x"))
    assert (answer.status, answer.json()["detail"]) == (500, "Internal server error")
    assert (await peer.ask(get("/hot"))).status == 200
    assert "application not loaded" in capsys.readouterr().out


async def test_it_is_told_what_was_asked(house: House) -> None:
    await house.open()
    told = (await house.ask(get("/app/a%2Fb/%C3%BC?x=%2F&y", "X-Client-Id: c1"))).json()
    assert told["path"] == "/app/a/b/ü"
    assert told["raw_path"] == "/app/a%2Fb/%C3%BC"
    assert told["query"] == "x=%2F&y"
    assert told["scheme"] == "http"
    assert told["client"][0] == told["peer"] == "127.0.0.1"
    assert (told["user"], told["client_id"]) == (None, "c1")


async def test_a_mistake_before_the_answer_costs_only_this_request(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    await house.open()
    peer = await house.connect()
    for path in ("/app/broken", "/app/silent", "/broken", "/bad-header"):
        answer = await peer.ask(get(path))
        assert (answer.status, answer.json()) == (500, {"detail": "Internal server error"})
    for path in ("/api/v1/app/broken", "/api/v1/broken"):
        answer = await peer.ask(get(path))
        assert (answer.status, answer.headers["content-type"]) == (500, "application/problem+json")
        assert answer.json() == {
            "type": "about:blank",
            "title": "Internal Server Error",
            "status": 500,
            "detail": "Internal server error",
            "code": "internal",
        }
    assert (await peer.ask(get())).status == 200
    printed = capsys.readouterr()
    assert len(re.findall(r"\[error +\] request failed", printed.out)) == 4
    assert len(re.findall(r"\[error +\] request without a response", printed.out)) == 1
    assert printed.err == ""


async def test_a_mistake_in_the_middle_of_an_answer_cuts_the_connection(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/app/cut") + get("/hot"))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await peer.answer()
    assert "request failed" in capsys.readouterr().out


async def test_an_error_with_a_code_is_told_in_the_form_of_its_path(house: House) -> None:
    await house.open()
    peer = await house.connect()
    plain, problem = await peer.ask(get("/refused")), await peer.ask(get("/api/v1/refused"))
    assert plain.json() == {"detail": "not so fast"}
    assert problem.json()["code"] == "quota-exceeded"
    assert problem.json()["retryable"] is True
    assert problem.headers["content-type"] == "application/problem+json"
    assert plain.headers["retry-after"] == problem.headers["retry-after"] == "1"
    assert plain.status == problem.status == 429


async def test_a_method_that_a_hot_path_does_not_take_is_told_those_that_it_takes(house: House) -> None:
    await house.open()
    peer = await house.connect()
    answer = await peer.ask(request("DELETE", "/hot"))
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert (await peer.ask(request("OPTIONS", "/hot"))).headers["allow"] == "GET, HEAD, POST, OPTIONS"
    assert (await peer.ask(request("PUT", "/large"))).json()["method"] == "PUT"  # the application has it
    assert (await peer.ask(get("/app/missing"))).status == 404


async def test_the_methods_of_a_path_are_told_alike_whoever_answers_it(house: House) -> None:
    await house.open()
    peer = await house.connect()
    for path, methods in (("/hot", "GET, HEAD, POST"), ("/app/read", "GET, HEAD")):
        refused = await peer.ask(request("DELETE", path))
        assert (refused.status, refused.headers["allow"]) == (405, methods)
        told = await peer.ask(request("OPTIONS", path))
        assert (told.status, told.headers["allow"]) == (204, f"{methods}, OPTIONS")
    assert (await peer.ask(request("OPTIONS", "/app/missing"))).status == 404
    assert (await peer.ask(get("/app/read"))).status == 200


async def test_a_query_is_read_once_for_each_name(house: House) -> None:
    await house.open()
    peer = await house.connect()
    assert (await peer.ask(get("/parameters?a=1&b=%C3%BC+x&c"))).json() == {"a": "1", "b": "ü x", "c": ""}
    for query in ("a=1&a=2", "a=%ff"):
        answer = await peer.ask(get(f"/api/v1/parameters?{query}"))
        assert (answer.status, answer.json()["code"]) == (400, "invalid-request")


async def test_a_body_waits_in_the_client_while_the_application_does_not_read(house: House) -> None:
    size = 6 * 1024 * 1024
    taken = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        taken.set()
        await house.may_go_on.wait()
        await house.app({**scope, "path": "/app/x"}, receive, send)

    await house.open(load_app=lambda: app)
    peer = await house.connect()
    sending = asyncio.ensure_future(peer.send(post("/app/slow", bytes(size))))
    await taken.wait()
    before = -1
    while before != house.broker.counters.bytes_received:
        before = house.broker.counters.bytes_received
        await asyncio.sleep(0.02)
    assert before < 2 * 1024 * 1024
    house.may_go_on.set()
    assert (await peer.answer()).json()["body"] == size
    await sending
