"""Who breaks a rule loses the connection or a stream, with the code of the standard, and no more."""

import pytest

from penstock.wire.http2 import Limits, RequestStarted, ServerConnection, StreamReset
from tests.wire.http2.broken_rules import (
    ALL,
    CONNECTION_ERRORS,
    GREETINGS,
    REFUSED_REQUESTS,
    STREAM_ERRORS,
    Case,
)
from tests.wire.http2.raw_client import (
    GREETING,
    HEAD,
    frame,
    goodbye_of,
    greeted,
    kinds_of,
    request,
    resets_of,
    written,
)

NARROW = Limits(connection_window_bytes=65_535, stream_window_bytes=65_535)
NARROW_STREAMS = Limits(stream_window_bytes=65_535)


def check_ended(connection: ServerConnection, case: Case) -> None:
    goodbye = goodbye_of(written(connection))
    assert goodbye is not None
    assert goodbye[1] is case.code
    assert connection.error is not None
    assert connection.error.reason is case.code
    assert connection.open_streams == 0
    assert connection.feed(request(99), 0.0) == []
    assert connection.drain() == b""


@pytest.mark.parametrize("case", GREETINGS, ids=str)
def test_who_does_not_greet_properly_loses_the_connection(case: Case) -> None:
    connection = ServerConnection(NARROW)
    assert connection.feed(case.data, 0.0) == []
    check_ended(connection, case)


@pytest.mark.parametrize("case", CONNECTION_ERRORS, ids=str)
def test_who_breaks_a_rule_of_connections_loses_the_connection(case: Case) -> None:
    connection = greeted(NARROW)
    connection.feed(case.data, 0.0)
    check_ended(connection, case)


@pytest.mark.parametrize("case", STREAM_ERRORS, ids=str)
def test_who_breaks_a_rule_of_streams_loses_the_stream_alone(case: Case) -> None:
    connection = greeted(NARROW_STREAMS)
    events = connection.feed(case.data, 0.0)
    assert isinstance(events[0], RequestStarted)
    assert events[-1] == StreamReset(1, case.code)
    assert resets_of(written(connection)) == [(1, case.code)]
    assert kinds_of(connection.feed(request(3), 0.0)) == ["RequestStarted"]


@pytest.mark.parametrize("case", REFUSED_REQUESTS, ids=str)
def test_a_malformed_request_is_reset_and_nobody_hears_of_it(case: Case) -> None:
    connection = greeted()
    assert connection.feed(case.data, 0.0) == []
    assert resets_of(written(connection)) == [(1, case.code)]
    assert kinds_of(connection.feed(request(3), 0.0)) == ["RequestStarted"]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_how_the_bytes_are_cut_changes_nothing(case: Case) -> None:
    limits = NARROW if case in ALL[: len(GREETINGS) + len(CONNECTION_ERRORS)] else NARROW_STREAMS
    whole, cut = ServerConnection(limits), ServerConnection(limits)
    expected = whole.feed(case.data, 0.0)
    size = 1 if len(case.data) < 2_000 else 1_001
    found = [
        event
        for start in range(0, len(case.data), size)
        for event in cut.feed(case.data[start : start + size], 0.0)
    ]
    assert found == expected
    assert cut.drain() == whole.drain()


def test_a_client_may_not_send_on_a_stream_that_both_sides_have_ended() -> None:
    connection = greeted(None, request(1))
    connection.respond(1, HEAD, is_last=True)
    connection.drain()
    connection.feed(frame(0, 0, 1, b"x"), 0.0)
    assert connection.error is not None
    assert connection.error.reason.name == "STREAM_CLOSED"


def test_an_error_holds_nothing_of_the_connection() -> None:
    connection = ServerConnection()
    connection.feed(GREETING + frame(6, 0, 0, b"short"), 0.0)
    assert connection.error is not None
    assert connection.error.__traceback__ is None
