"""Whatever the two sides do, both see what was meant: our client with our server, and with that of `h2`."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http2 import ErrorCode, Field, GoneAway, Limits, StreamRefused
from tests.support.examples import examples
from tests.wire.http2.client_pair import Call, ClientPair, ForeignServer, OurServer, check
from tests.wire.http2.raw_server import ASK

NARROW = Limits(streams=3, stream_window_bytes=65_535, connection_window_bytes=65_535)
WIDE = Limits()
OK_TRAILERS: list[Field] = [(b"grpc-status", b"0")]

names = st.from_regex(rb"x-[a-z0-9_.-]{0,8}", fullmatch=True)
values = st.binary(max_size=30).map(lambda value: bytes(byte for byte in value if byte > 0x20))
fields = st.lists(st.tuples(names, values), max_size=3)
sizes = st.sampled_from([0, 1, 5, 100, 1_000, 16_384, 16_385, 40_000, 100_000])
pieces = st.none() | st.integers(1, 60) | st.integers(1, 20_000)
numbers = st.integers(0, 5)
codes = st.sampled_from([ErrorCode.CANCEL, ErrorCode.INTERNAL_ERROR, ErrorCode.REFUSED_STREAM])

steps = st.one_of(
    st.tuples(st.just("ask"), fields, st.booleans(), st.none() | sizes),
    st.tuples(st.just("ask"), st.just([]), st.just(False), st.none()),
    st.tuples(st.just("add"), numbers, sizes, st.booleans()),
    st.tuples(st.just("add"), numbers, sizes, st.just(False)),
    st.tuples(st.just("cancel"), numbers),
    st.tuples(st.just("read"), numbers),
    st.tuples(st.just("ping"), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just("beat"), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just("respond"), numbers, fields),
    st.tuples(st.just("respond"), numbers, st.just([])),
    st.tuples(st.just("send"), numbers, sizes),
    st.tuples(st.just("send"), numbers, sizes),
    st.tuples(st.just("finish"), numbers, fields),
    st.tuples(st.just("stop"), numbers, codes),
    st.tuples(st.just("consume"), numbers),
    st.tuples(st.just("up"), pieces),
    st.tuples(st.just("up"), st.none()),
    st.tuples(st.just("down"), pieces),
    st.tuples(st.just("down"), st.none()),
)


def ours(calls: dict[int, Call], limits: Limits) -> OurServer:
    return OurServer(calls, limits)


def foreign(calls: dict[int, Call], limits: Limits) -> ForeignServer:
    return ForeignServer(calls, 7 if limits is NARROW else 65_535, limits.streams)


SERVERS: list[Callable[[dict[int, Call], Limits], OurServer | ForeignServer]] = [ours, foreign]


class Playing:
    """Does one thing after the other; what makes no sense now is left out."""

    def __init__(
        self, make: Callable[[dict[int, Call], Limits], OurServer | ForeignServer], limits: Limits
    ) -> None:
        calls: dict[int, Call] = {}
        self.server = make(calls, limits)
        self.pair = ClientPair(self.server, calls, limits)
        self.pings: list[bytes] = []
        self.beats: list[bytes] = []
        if isinstance(self.server, ForeignServer):
            self.pair.settle()  # it takes no more than its window from the first, though it has not said so

    def play(self, step: tuple[object, ...]) -> None:
        what, *rest = step
        match what, rest:
            case "ask", [list(drawn), bool(is_last), size]:
                self.pair.ask(drawn, is_last=is_last, size=size)  # type: ignore[arg-type]
            case "ping", [bytes(payload)]:
                self.pair.server.ping(payload)
                self.pings.append(payload)
            case "beat", [bytes(payload)]:
                self.pair.client.ping(payload)
                self.beats.append(payload)
            case "up", [size]:
                self.pair.go_up(size)  # type: ignore[arg-type]
            case "down", [size]:
                self.pair.go_down(size)  # type: ignore[arg-type]
            case _, [int(number), *others] if self.pair.calls:
                calls = list(self.pair.calls.values())
                self._play_call(str(what), calls[number % len(calls)], others)

    def _play_call(self, what: str, call: Call, rest: list[object]) -> None:
        pair = self.pair
        match what, rest:
            case "add", [int(size), bool(is_last)]:
                pair.add(call, size, is_last=is_last)
            case "cancel", []:
                pair.cancel(call)
            case "read", []:
                pair.read(call)
            case "respond", [list(drawn)]:
                pair.respond(call, drawn)
            case "send", [int(size)]:
                pair.send(call, size)
            case "finish", [list(drawn)]:
                pair.finish(call, drawn)
            case "stop", [ErrorCode() as code]:
                pair.stop(call, code)
            case "consume", []:
                pair.server.consume(call)
            case _:
                raise AssertionError(what)


@pytest.mark.parametrize("make", SERVERS)
@examples(75, print_blob=True)
@given(limits=st.sampled_from([NARROW, WIDE]), drawn=st.lists(steps, min_size=12, max_size=50))
def test_everything_arrives_as_it_was_meant(
    make: Callable[[dict[int, Call], Limits], OurServer | ForeignServer],
    limits: Limits,
    drawn: list[tuple[object, ...]],
) -> None:
    playing = Playing(make, limits)
    for step in drawn:
        playing.play(step)
    pair = playing.pair
    pair.settle()
    for call in pair.calls.values():
        check(call)
    assert pair.pongs == playing.beats
    assert playing.server.pongs == playing.pings
    assert pair.client.is_settled
    assert pair.client.open_streams == sum(call.may_ask for call in pair.calls.values())


@pytest.mark.parametrize("make", SERVERS)
def test_a_long_talk_on_one_stream_arrives_whole_through_narrow_windows(
    make: Callable[[dict[int, Call], Limits], OurServer | ForeignServer],
) -> None:
    calls: dict[int, Call] = {}
    pair = ClientPair(make(calls, NARROW), calls, NARROW)
    pair.settle()
    call = pair.ask([], is_last=False)
    assert call is not None
    pair.go_up()
    pair.respond(call, [])
    for number in range(60):
        pair.add(call, 9_000, is_last=number == 59)
        pair.go_up(5_000)
        pair.send(call, 8_000)
        pair.go_down(6_000)
        pair.read(call)
        pair.server.consume(call)
    pair.settle()
    pair.finish(call, OK_TRAILERS)
    pair.settle()
    check(call)
    assert call.has_ended
    assert len(call.heard) == 60 * 9_000
    assert len(call.seen) > 200_000


def test_windows_of_one_byte_let_a_request_through() -> None:
    calls: dict[int, Call] = {}
    server = ForeignServer(calls, 1, 10)
    pair = ClientPair(server, calls)
    pair.settle()
    call = pair.ask([], is_last=True, size=50)
    assert call is not None
    for received in range(1, 51):
        pair.go_up()
        assert len(call.heard) == received
        assert call.has_heard is (received == 50)
        server.http2.acknowledge_received_data(1, call.id)
        pair.go_down()
    assert call.heard == call.asked
    assert server.pongs == []


def test_calls_that_our_leaving_server_has_not_seen_may_be_sent_again() -> None:
    calls: dict[int, Call] = {}
    server = OurServer(calls, WIDE)
    pair = ClientPair(server, calls)
    first = pair.ask([], is_last=True)
    pair.settle()
    server.http2.go_away()
    second = pair.ask([], is_last=True)  # before the client hears of it
    pair.go_up()
    pair.go_down()
    assert pair.goodbyes == [GoneAway(ErrorCode.NO_ERROR, "")]
    with pytest.raises(StreamRefused):
        pair.client.request(ASK)
    pair.settle()
    assert len(pair.goodbyes) == 2
    for call in (first, second):
        assert call is not None and call.is_known
        pair.respond(call, [])
        pair.finish(call, OK_TRAILERS)
    pair.settle()
    assert [call.has_ended for call in pair.calls.values()] == [True, True]
    assert pair.client.open_streams == server.http2.open_streams == 0


def test_calls_behind_a_failure_of_our_server_may_be_sent_again() -> None:
    calls: dict[int, Call] = {}
    server = OurServer(calls, WIDE)
    pair = ClientPair(server, calls)
    known, unknown = pair.ask([], is_last=True), None
    pair.settle()
    unknown = pair.ask([], is_last=True)
    server.http2.abort(ErrorCode.INTERNAL_ERROR, "out of order")
    pair.go_down()
    assert known is not None and unknown is not None
    assert pair.goodbyes == [GoneAway(ErrorCode.INTERNAL_ERROR, "out of order")]
    assert unknown.is_unprocessed
    assert not known.is_unprocessed


def test_calls_behind_the_goodbye_of_another_server_may_be_sent_again() -> None:
    calls: dict[int, Call] = {}
    server = ForeignServer(calls, 65_535, 10)
    pair = ClientPair(server, calls)
    asked = [pair.ask([], is_last=True) for _ in range(3)]
    pair.settle()
    server.http2.close_connection(ErrorCode.NO_ERROR, last_stream_id=3)
    pair.go_down()
    assert [call is not None and call.is_unprocessed for call in asked] == [False, False, True]
    assert pair.client.open_streams == 2


def test_a_server_takes_no_more_streams_than_it_says() -> None:
    calls: dict[int, Call] = {}
    pair = ClientPair(ForeignServer(calls, 65_535, 2), calls)
    pair.settle()
    assert [pair.ask([], is_last=True) is not None for _ in range(3)] == [True, True, False]
    pair.settle()
    call = pair.calls[1]
    pair.respond(call, [])
    pair.finish(call, OK_TRAILERS)
    pair.settle()
    assert pair.ask([], is_last=True) is not None
    pair.settle()
    assert sum(call.is_known for call in pair.calls.values()) == 3
