"""HTTP client against scripted servers that close, truncate or send garbage."""

import io
import socket
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.client import ConnectionLost, ConnectionRefused, HttpClient, HttpRefused, NewMessage
from penstock.extras import how_to_get
from tests.client.http.scripts import Caller, Script, scripted
from tests.support.ports import free_port

RECEIPT = (
    b'{"topic":"a","sequence":1,"epoch":1,"cursor":"AQ","subscribers":0,"stored":false,"something":"new"}'
)
STATEMENT = (
    b'{"after":null,"next":"AQ","served":2,"is_complete":true,"is_at_head":true,"missing":[],"gaps":[]}'
)
SCHEMA = pa.schema([("offset", pa.int64()), ("topic", pa.string())])


def log_stream(*, with_statement: bool = True) -> bytes:
    """What a server sends that has two rows."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch([[1, 2], ["a", "b"]], schema=SCHEMA))
        if with_statement:
            empty = pa.record_batch([[], []], schema=SCHEMA)
            writer.write_batch(empty, custom_metadata={"penstock.statement": STATEMENT})
    return sink.getvalue()


def chunked(*parts: bytes, is_ended: bool = True) -> bytes:
    """An answer in chunks, with or without the one that says that it is all."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + body + (b"0\r\n\r\n" if is_ended else b"")


def problem(status: int, code: str, **more: object) -> bytes:
    """The body of an error."""
    content = {
        "type": "about:blank",
        "title": "No",
        "status": status,
        "detail": f"it is {code}",
        "code": code,
    }
    return msgspec.json.encode(content | more)


def serving(data: bytes) -> Script:
    """A script that answers the first request with these bytes and hangs up."""

    def script(caller: Caller) -> None:
        caller.take()
        caller.send(data)

    return script


# What is sent


def test_a_request_says_who_sends_it() -> None:
    def script(caller: Caller) -> None:
        _, headers, _ = caller.take()
        kind, _, proof = headers["authorization"].partition(" ")
        assert (kind, b64decode(proof)) == ("Basic", "ann:päss:word".encode())
        assert headers["x-client-id"] == "tool-1"
        caller.answer()
        assert caller.is_silent()

    with scripted(script) as address, HttpClient(address, "ann", "päss:word", client_id="tool-1") as client:
        client.metrics()


def test_names_and_parameters_are_written_so_that_a_server_reads_the_same() -> None:
    history = b'{"messages":[],"statement":%b}' % STATEMENT
    when = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)

    def script(caller: Caller) -> None:
        expected = "/api/v1/messages?topic=a%2Fb+%C3%BC%3F&from=2026-01-31T12%3A00%3A00.000001Z&limit=5"
        assert caller.take()[0] == f"GET {expected} HTTP/1.1"
        caller.answer(history)
        assert caller.take()[0] == "GET /api/v1/client?client_id=a%2Fb HTTP/1.1"
        caller.answer()
        assert caller.take()[0].startswith("GET /api/v1/clients?limit=1000&connected=true ")
        caller.answer(b'{"clients":[],"next":null}')

    with scripted(script) as address, HttpClient(address) as client:
        client.messages("a/b ü?", start=when, limit=5)
        client.client("a/b")
        assert list(client.clients(connected=True)) == []


def test_a_time_without_a_zone_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="time zone"):
        HttpClient("http://127.0.0.1:1").messages("a", start=datetime(2026, 1, 31))


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"data": {"a": 1}}, {"data": {"a": 1}}),
        ({"data": None}, {"data": None}),
        ({"payload": "text"}, {"payload": "text"}),
        ({"payload": ""}, {"payload": ""}),
        ({"payload": b"\xff\x00"}, {"data": {"$bytes": "/wA="}}),
        (
            {"payload": "x", "qos": 0, "retain": True, "ttl_ms": 5},
            {"payload": "x", "qos": 0, "retain": True, "ttl_ms": 5},
        ),
    ],
)
def test_a_publish_sends_what_was_given_and_no_more(given: dict[str, Any], sent: dict[str, object]) -> None:
    def script(caller: Caller) -> None:
        first, headers, body = caller.take()
        assert (first, headers["content-type"]) == ("POST /api/v1/publish HTTP/1.1", "application/json")
        assert msgspec.json.decode(body) == {"topic": "a"} | sent
        caller.answer(RECEIPT)

    with scripted(script) as address, HttpClient(address) as client:
        assert client.publish("a", **given).sequence == 1


def test_data_and_payload_together_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        HttpClient().publish("a", 1, payload="x")


def test_pages_are_asked_for_until_there_are_no_more() -> None:
    def script(caller: Caller) -> None:
        assert "after=" not in caller.take()[0]
        caller.answer(b'{"topics":[{"name":"a"},{"name":"b c"}],"next":"b c"}')
        assert "after=b+c" in caller.take()[0]
        caller.answer(b'{"topics":[{"name":"d"}],"next":null}')
        assert caller.is_silent()

    with scripted(script) as address, HttpClient(address) as client:
        assert [topic["name"] for topic in client.topics()] == ["a", "b c", "d"]


def test_a_server_behind_a_path_is_asked_there() -> None:
    def script(caller: Caller) -> None:
        assert caller.take()[0] == "GET /broker/metrics HTTP/1.1"
        caller.answer()

    with scripted(script) as address, HttpClient(f"{address}/broker/") as client:
        client.metrics()


# Connections


def test_requests_share_a_connection() -> None:
    def script(caller: Caller) -> None:
        for _ in range(3):
            caller.take()
            caller.answer()
        assert caller.is_silent()

    with scripted(script) as address, HttpClient(address) as client:
        for _ in range(3):
            client.metrics()


def test_a_connection_that_the_server_closed_is_noticed_before_it_is_used() -> None:
    is_closed = threading.Event()

    def first(caller: Caller) -> None:
        caller.take()
        caller.answer(RECEIPT)
        caller.socket.shutdown(socket.SHUT_RDWR)
        is_closed.set()

    def second(caller: Caller) -> None:
        assert caller.take()[0].startswith("POST")
        caller.answer(RECEIPT)

    with scripted(first, second) as address, HttpClient(address) as client:
        client.publish("a", 1)
        assert is_closed.wait(5)
        client.publish("a", 1)


def hang_up_on_the_second(caller: Caller) -> None:
    caller.take()
    caller.answer(RECEIPT)
    caller.take()


def test_a_request_that_may_be_repeated_is_when_a_kept_connection_breaks() -> None:
    def second(caller: Caller) -> None:
        assert msgspec.json.decode(caller.take()[2])["message_id"] == "2"
        caller.answer(RECEIPT)

    with scripted(hang_up_on_the_second, second) as address, HttpClient(address) as client:
        client.publish("a", 1, message_id="1")
        assert client.publish("a", 1, message_id="2").sequence == 1


def test_a_request_that_may_not_be_repeated_is_not() -> None:
    with scripted(hang_up_on_the_second) as address, HttpClient(address) as client:
        client.publish("a", 1)
        with pytest.raises(ConnectionLost, match="without a response"):
            client.publish("a", 1)


def test_many_messages_are_sent_again_only_if_each_has_an_id() -> None:
    with scripted(hang_up_on_the_second) as address, HttpClient(address) as client:
        client.publish("a", 1)
        with pytest.raises(ConnectionLost):
            client.publish_many([NewMessage(topic="a", data=1, message_id="1"), {"topic": "a", "data": 2}])


def test_a_new_connection_that_breaks_is_not_tried_again() -> None:
    with (
        scripted(lambda caller: caller.take()) as address,
        HttpClient(address) as client,
        pytest.raises(ConnectionLost, match="without a response; is this its HTTP port"),
    ):
        client.metrics()


def test_an_answer_that_does_not_come_in_time_is_not_asked_for_again() -> None:
    def first(caller: Caller) -> None:
        caller.take()
        caller.answer()
        caller.take()
        assert caller.is_silent()

    def second(caller: Caller) -> None:
        caller.take()
        caller.answer(b'{"good":true}')

    with scripted(first, second) as address, HttpClient(address, timeout=1.0) as client:
        client.metrics()
        with pytest.raises(ConnectionLost, match=r"within 1 s") as caught:
            client.metrics()
        assert caught.value.retryable
        assert client.metrics() == {"good": True}  # on a connection where no late answer can come


def test_after_an_answer_that_broke_off_the_next_one_is_its_own() -> None:
    broken = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"

    def good(caller: Caller) -> None:
        caller.take()
        caller.answer(b'{"good":true}')

    with scripted(serving(broken), good) as address, HttpClient(address) as client:
        with pytest.raises(ConnectionLost, match="middle"):
            client.metrics()
        assert client.metrics() == {"good": True}


def test_a_server_that_closes_after_its_answer_is_connected_to_again() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    with scripted(serving(closing), serving(closing)) as address, HttpClient(address) as client:
        assert [client.metrics(), client.metrics()] == [{}, {}]


def test_several_threads_may_share_a_client() -> None:
    def script(caller: Caller) -> None:
        for _ in range(20):
            first, _, _ = caller.take()
            caller.answer(msgspec.json.encode({"name": first.split()[1].rpartition("=")[2]}))

    answers: dict[str, object] = {}

    def ask(name: str) -> None:
        for _ in range(5):
            answers[name] = client.client(name)

    with scripted(script) as address, HttpClient(address) as client:
        threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {name: {"name": name} for name in "abcd"}


# Errors


def test_a_problem_is_an_error_with_its_code() -> None:
    body = problem(429, "quota-exceeded", retryable=True, errors=[{"index": 3, "code": "x", "detail": "y"}])

    def script(caller: Caller) -> None:
        caller.take()
        caller.answer(body, "429 Too Many Requests", "application/problem+json")
        caller.take()
        caller.answer()

    with scripted(script) as address, HttpClient(address) as client:
        with pytest.raises(HttpRefused, match="it is quota-exceeded") as caught:
            client.publish("a", 1)
        error = caught.value
        assert (error.code, error.status, error.retryable) == ("quota-exceeded", 429, True)
        assert error.errors == [{"index": 3, "code": "x", "detail": "y"}]
        assert client.metrics() == {}  # on the same connection
    assert (HttpRefused.code, HttpRefused.retryable) == ("request-refused", False)


def test_an_error_of_someone_in_between_says_what_it_says() -> None:
    def script(caller: Caller) -> None:
        caller.take()
        caller.answer(b"<h1>Bad gateway</h1>", "502 Bad Gateway", "text/html")

    with (
        scripted(script) as address,
        HttpClient(address) as client,
        pytest.raises(HttpRefused, match="502: <h1>Bad gateway") as caught,
    ):
        client.metrics()
    assert (caught.value.code, caught.value.status) == ("request-refused", 502)


@pytest.mark.parametrize(
    ("status", "code"), [("401 Unauthorized", "bad-credentials"), ("403 Forbidden", "not-authorized")]
)
def test_an_error_outside_of_the_api_has_the_code_of_its_status(status: str, code: str) -> None:
    def script(caller: Caller) -> None:
        caller.take()
        caller.answer(b'{"detail":"no"}', status)

    with scripted(script) as address, HttpClient(address) as client, pytest.raises(HttpRefused) as caught:
        client.metrics()
    assert (caught.value.code, str(caught.value)) == (code, "no")


def test_an_unwell_server_is_no_error_but_an_answer() -> None:
    def script(caller: Caller) -> None:
        caller.take()
        caller.answer(b'{"status":"draining"}', "503 Service Unavailable")
        caller.take()
        caller.answer(b'{"status":"draining"}', "503 Service Unavailable")

    with scripted(script) as address, HttpClient(address) as client:
        assert client.health() == {"status": "draining"}
        assert client.ready() is False


def test_nobody_there_is_told() -> None:
    port = free_port()
    with pytest.raises(
        ConnectionRefused, match=rf"no connection to http://127\.0\.0\.1:{port}: Connection refused"
    ):
        HttpClient(f"http://127.0.0.1:{port}").metrics()


def test_a_host_that_does_not_exist_is_told() -> None:
    with pytest.raises(ConnectionRefused, match="no host of that name"):
        HttpClient("http://nowhere.invalid:8080").metrics()


@pytest.mark.parametrize("nonsense", [b"\x15\x03\x01\x00\x02\x02\x50", b"\x20\x02\x00\x05 and so on\r\n\r\n"])
def test_what_is_not_http_is_told(nonsense: bytes) -> None:
    with (
        scripted(serving(nonsense)) as address,
        HttpClient(address) as client,
        pytest.raises(ConnectionRefused, match="not an HTTP response"),
    ):
        client.metrics()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"null", b"7", b'"ok"', b"[" * 5_000, b"{}"])
@pytest.mark.parametrize("ask", [HttpClient.slow, lambda client: list(client.topics())])
def test_an_answer_that_is_not_what_was_asked_for_is_told(
    ask: Callable[[HttpClient], object], body: bytes
) -> None:
    def script(caller: Caller) -> None:
        caller.take()
        caller.answer(body)

    with (
        scripted(script) as address,
        HttpClient(address) as client,
        pytest.raises(ConnectionRefused, match="HTTP port of a Penstock server"),
    ):
        ask(client)


@pytest.mark.parametrize("body", [b"<html>", b"[1", b'{"topic":"a"}'])
def test_an_answer_that_no_penstock_gives_is_told(body: bytes) -> None:
    def script(caller: Caller) -> None:
        caller.take()
        caller.answer(body)

    with (
        scripted(script) as address,
        HttpClient(address) as client,
        pytest.raises(ConnectionRefused, match="Penstock server"),
    ):
        client.publish("a", 1)


def test_https_to_a_port_that_speaks_http_is_told() -> None:
    def script(caller: Caller) -> None:
        caller.socket.recv(1)
        caller.answer(status="400 Bad Request")

    with scripted(script) as address, pytest.raises(ConnectionRefused, match="is this an HTTPS port"):
        HttpClient(address.replace("http", "https")).metrics()


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_refusal_is_heard_even_if_the_body_was_not_taken(is_drained: bool) -> None:
    """Whoever sends too much is told so, although the server hangs up in the middle."""

    def script(caller: Caller) -> None:
        caller.socket.recv(100)
        caller.answer(problem(413, "too-large"), "413 Content Too Large", "application/problem+json")
        caller.socket.shutdown(socket.SHUT_WR)
        while is_drained and caller.socket.recv(1 << 16):
            pass

    with scripted(script) as address, HttpClient(address) as client, pytest.raises(HttpRefused) as caught:
        client.publish("a", payload="x" * 5_000_000)
    assert caught.value.code == "too-large"


# Reading the log


def test_the_log_is_read_as_batches_and_ends_with_a_statement() -> None:
    stream = log_stream()
    with scripted(serving(chunked(stream[:100], stream[100:]))) as address, HttpClient(address) as client:
        log = client.read_log()
        with pytest.raises(ValueError, match="after the last batch"):
            _ = log.statement
        assert [batch.to_pydict() for batch in log] == [{"offset": [1, 2], "topic": ["a", "b"]}]
        assert (log.statement.next, log.statement.served, log.statement.is_complete) == ("AQ", 2, True)


def test_what_is_asked_of_the_log_is_in_the_request() -> None:
    def script(caller: Caller) -> None:
        first, headers, _ = caller.take()
        query = "after=AQ&until=AR&filter=a%2F%2B&filter=b&columns=topic%2Cpayload&limit_rows=7"
        assert first == f"GET /api/v1/log?{query} HTTP/1.1"
        assert headers["accept"] == "application/vnd.apache.arrow.stream"
        caller.send(chunked(log_stream()))

    with scripted(script) as address, HttpClient(address) as client:
        asked = client.read_log(
            after="AQ", until="AR", filters=["a/+", "b"], columns=["topic", "payload"], limit_rows=7
        )
        assert asked.table().num_rows == 2
        assert asked.statement.served == 2


STREAM = log_stream()
CUT_OFF = {
    "between batches": chunked(STREAM[:-8], is_ended=False),
    "in a batch": chunked(STREAM[:300], is_ended=False),
    "in the schema": chunked(STREAM[:20], is_ended=False),
    "before anything": chunked(is_ended=False),
    "in a batch, with a clean end": chunked(STREAM[:300]),
    "in a body of known length": b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + STREAM[:-8],
}


@pytest.mark.parametrize(
    "answer", [*CUT_OFF.values(), chunked(log_stream(with_statement=False))], ids=[*CUT_OFF, "no statement"]
)
def test_a_read_that_was_cut_off_never_looks_like_the_end(answer: bytes) -> None:
    with (
        scripted(serving(answer)) as address,
        HttpClient(address) as client,
        pytest.raises(ConnectionLost, match="truncated"),
    ):
        list(client.read_log())


@pytest.mark.parametrize("answer", CUT_OFF.values(), ids=CUT_OFF)
def test_bytes_that_were_cut_off_never_look_like_the_end(answer: bytes) -> None:
    with (
        scripted(serving(answer)) as address,
        HttpClient(address) as client,
        pytest.raises(ConnectionLost, match="truncated"),
    ):
        list(client.read_log().chunks())


def test_the_bytes_of_the_log_are_those_that_were_sent() -> None:
    with scripted(serving(chunked(STREAM[:5], STREAM[5:]))) as address, HttpClient(address) as client:
        assert b"".join(client.read_log().chunks()) == STREAM


def test_a_refusal_to_read_comes_before_any_batch() -> None:
    def script(caller: Caller) -> None:
        caller.take()
        caller.answer(problem(404, "no-log"), "404 Not Found", "application/problem+json")

    with scripted(script) as address, HttpClient(address) as client, pytest.raises(HttpRefused) as caught:
        client.read_log()
    assert (caught.value.code, caught.value.status) == ("no-log", 404)


def test_a_read_that_is_left_hangs_up() -> None:
    def script(caller: Caller) -> None:
        caller.take()
        caller.send(chunked(STREAM[:-8], is_ended=False))
        assert caller.is_silent()

    with scripted(script) as address, HttpClient(address) as client, client.read_log() as log:
        assert next(iter(log)).num_rows == 2


def test_other_requests_can_be_sent_while_the_log_is_read() -> None:
    is_asked = threading.Event()

    def reading(caller: Caller) -> None:
        caller.take()
        caller.send(chunked(STREAM))

    def asking(caller: Caller) -> None:
        caller.take()
        caller.answer()
        is_asked.set()

    with scripted(reading, asking) as address, HttpClient(address) as client:
        log = client.read_log()
        assert client.metrics() == {}
        assert is_asked.wait(5)
        assert log.table().num_rows == 2


# What it needs


def test_the_client_needs_neither_pyarrow_nor_a_web_framework() -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None; import penstock.client as c;"
        "print({'fastapi', 'starlette', 'uvicorn', 'rocksdict', 'typer', 'rich'} & sys.modules.keys());"
        "c.HttpClient().stage('a', batches=[])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "set()\n"
    assert f"ModuleNotFoundError: record batches need pyarrow: {how_to_get('log')}" in done.stderr
