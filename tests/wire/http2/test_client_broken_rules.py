"""A server that breaks a rule loses the connection or a call, with the code of the standard, and no more."""

import pytest

from penstock.wire.http2 import ClientConnection, Limits, StreamReset
from tests.wire.http2.broken_rules import Case
from tests.wire.http2.client_broken_rules import CONNECTION_ERRORS, GREETINGS, STREAM_ERRORS
from tests.wire.http2.raw_client import frame, goodbye_of, kinds_of, resets_of
from tests.wire.http2.raw_server import ASK, GREETING, response, trailers, written

NARROW = Limits(connection_window_bytes=65_535, stream_window_bytes=65_535)
NARROW_STREAMS = Limits(stream_window_bytes=65_535)


def asking(limits: Limits, *, is_last: bool) -> ClientConnection:
    """A client with two open requests and a cancelled one, before any word of its server."""
    client = ClientConnection(limits)
    for _ in range(3):
        client.request(ASK, is_last=is_last)
    client.reset(5)
    client.drain()
    return client


def check_ended(client: ClientConnection, case: Case) -> None:
    assert goodbye_of(written(client)) == (0, case.code)
    assert client.error is not None
    assert client.error.reason is case.code
    assert client.error.__traceback__ is None  # it holds nothing of the connection
    assert client.open_streams == client.free_streams == 0
    assert client.feed(response(1), 0.0) == []
    assert client.drain() == b""


@pytest.mark.parametrize("case", GREETINGS, ids=str)
def test_a_server_that_does_not_greet_properly_loses_the_connection(case: Case) -> None:
    client = asking(NARROW, is_last=True)
    assert client.feed(case.data, 0.0) == []
    check_ended(client, case)


@pytest.mark.parametrize("case", CONNECTION_ERRORS, ids=str)
def test_a_server_that_breaks_a_rule_of_connections_loses_the_connection(case: Case) -> None:
    client = asking(NARROW, is_last=True)
    client.feed(GREETING, 0.0)
    assert client.error is None
    client.feed(case.data, 0.0)
    check_ended(client, case)


@pytest.mark.parametrize("case", STREAM_ERRORS, ids=str)
def test_a_server_that_breaks_a_rule_of_streams_loses_the_call_alone(case: Case) -> None:
    client = asking(NARROW_STREAMS, is_last=False)
    client.feed(GREETING, 0.0)
    events = client.feed(case.data, 0.0)
    assert events[-1] == StreamReset(1, case.code)
    assert resets_of(written(client)) == [(1, case.code)]
    assert client.open_streams == 1
    client.finish(3)
    late = frame(0, 0, 1, b"x") + trailers(1)
    assert kinds_of(client.feed(late + response(3) + trailers(3), 0.0)) == [
        "ResponseStarted",
        "TrailersReceived",
    ]
    assert client.error is None


@pytest.mark.parametrize("case", STREAM_ERRORS, ids=str)
def test_data_of_a_broken_call_uses_no_room_of_the_others(case: Case) -> None:
    """Windows that were not given back would leave the server without room in the end."""
    client = asking(NARROW_STREAMS, is_last=False)
    client.feed(GREETING, 0.0)
    client.feed(case.data, 0.0)
    inflow = client._inflow
    assert inflow._left + inflow._returned_bytes == NARROW_STREAMS.connection_window_bytes


@pytest.mark.parametrize("case", GREETINGS + CONNECTION_ERRORS + STREAM_ERRORS, ids=str)
def test_how_the_bytes_are_cut_changes_nothing(case: Case) -> None:
    limits = NARROW_STREAMS if case.stream_id else NARROW
    data = case.data if case in GREETINGS else GREETING + case.data
    whole, cut = (asking(limits, is_last=not case.stream_id) for _ in range(2))
    expected = whole.feed(data, 0.0)
    size = 1 if len(data) < 2_000 else 1_001
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [event for piece in pieces for event in cut.feed(piece, 0.0)] == expected
    assert cut.drain() == whole.drain()
