"""Whatever the two sides do, another library's client accepts all we write, and both see what was meant."""

from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http2 import ErrorCode, Field, Limits
from tests.support.examples import examples
from tests.wire.http2.pair import Call, Pair

NARROW = Limits(streams=3, stream_window_bytes=65_535, connection_window_bytes=65_535)
WIDE = Limits()

names = st.from_regex(rb"x-[a-z0-9_.-]{0,8}", fullmatch=True)
values = st.binary(max_size=30).map(lambda value: bytes(byte for byte in value if byte > 0x20))
fields = st.lists(st.tuples(names, values), max_size=3)
sizes = st.sampled_from([0, 1, 5, 100, 1_000, 16_384, 16_385, 40_000, 100_000])
pieces = st.none() | st.integers(1, 60) | st.integers(1, 20_000)
windows = st.sampled_from([0, 1, 100, 16_384, 65_535, 200_000])

steps = st.one_of(
    st.tuples(st.just("ask"), fields, st.booleans()),
    st.tuples(st.just("ask"), st.just([]), st.just(False)),
    st.tuples(st.just("add"), st.integers(0, 5), sizes, st.booleans()),
    st.tuples(st.just("add"), st.integers(0, 5), sizes, st.just(False)),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("window"), windows),
    st.tuples(st.just("frame"), st.sampled_from([16_384, 16_385, 50_000, 16_777_215])),
    st.tuples(st.just("table"), st.sampled_from([0, 100, 4_096, 10_000])),
    st.tuples(st.just("read")),
    st.tuples(st.just("ping"), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just("respond"), st.integers(0, 5), fields),
    st.tuples(st.just("respond"), st.integers(0, 5), st.just([])),
    st.tuples(st.just("send"), st.integers(0, 5), sizes),
    st.tuples(st.just("send"), st.integers(0, 5), sizes),
    st.tuples(st.just("finish"), st.integers(0, 5), fields),
    st.tuples(
        st.just("reset"), st.integers(0, 5), st.sampled_from([ErrorCode.CANCEL, ErrorCode.INTERNAL_ERROR])
    ),
    st.tuples(st.just("consume"), st.integers(0, 5)),
    st.tuples(st.just("call"), st.booleans(), sizes),
    st.tuples(st.just("call"), st.booleans(), sizes),
    st.tuples(st.just("end"), st.integers(0, 5), sizes),
    st.tuples(st.just("end"), st.integers(0, 5), sizes),
    st.tuples(st.just("up"), pieces),
    st.tuples(st.just("up"), st.none()),
    st.tuples(st.just("down"), pieces),
    st.tuples(st.just("down"), st.none()),
)


def play(pair: Pair, step: tuple[object, ...]) -> None:
    """Do one thing; what makes no sense now is left out."""
    what, *rest = step
    match what, rest:
        case "ask", [list(drawn), bool(is_last)]:
            pair.ask(drawn, is_last=is_last)
        case "call", [bool(is_last), int(size)]:
            pair.ask([], is_last=is_last)
            pair.go_up()
            if pair.calls:
                call = list(pair.calls.values())[-1]
                pair.respond(call, [])
                pair.send(call, size)
        case "window", [int(size)]:
            pair.change(SettingCodes.INITIAL_WINDOW_SIZE, size)
        case "frame", [int(size)]:
            pair.change(SettingCodes.MAX_FRAME_SIZE, size)
        case "table", [int(size)]:
            pair.change(SettingCodes.HEADER_TABLE_SIZE, size)
        case "read", []:
            pair.read()
        case "ping", [bytes(payload)]:
            pair.ping(payload)
        case "up", [size]:
            pair.go_up(size)  # type: ignore[arg-type]
        case "down", [size]:
            pair.go_down(size)  # type: ignore[arg-type]
        case _, [int(number), *others] if pair.calls:
            calls = list(pair.calls.values())
            play_call(pair, str(what), calls[number % len(calls)], others)


def play_call(pair: Pair, what: str, call: Call, rest: list[object]) -> None:
    match what, rest:
        case "add", [int(size), bool(is_last)]:
            pair.add(call, size, is_last=is_last)
        case "cancel", []:
            pair.cancel(call)
        case "respond", [list(drawn)]:
            pair.respond(call, drawn)
        case "send", [int(size)]:
            pair.send(call, size)
        case "finish", [list(drawn)]:
            pair.finish(call, drawn)
        case "end", [int(size)]:
            pair.send(call, size)
            pair.finish(call, [(b"grpc-status", b"0")])
        case "reset", [ErrorCode() as code]:
            pair.reset(call, code)
        case "consume", []:
            pair.consume(call)
        case _:
            raise AssertionError(what)


def check(call: Call) -> None:
    """Both sides have seen what the other meant, or the beginning of it if one has cut it short."""
    if call.reset_by_client:
        assert call.asked.startswith(call.heard)
        assert call.answered.startswith(call.seen)
        return
    if not call.is_known:
        assert call.seen_reset == ErrorCode.REFUSED_STREAM
        assert call.seen_head is None
        return
    assert call.seen_head == call.head or call.reset_by_server is not None
    if call.reset_by_server is not None:
        assert call.seen_reset == call.reset_by_server
        assert call.answered.startswith(call.seen)
        assert not call.has_ended
        return
    assert call.seen == call.answered
    assert call.seen_trailers == (call.trailers or None)
    assert call.has_ended is (call.trailers is not None)
    if call.trailers is None or call.has_heard:
        assert call.heard == call.asked
        assert call.has_heard is call.has_asked
        assert call.seen_reset is None
    else:
        assert call.asked.startswith(call.heard)
        assert call.seen_reset == ErrorCode.NO_ERROR or (call.has_asked and call.seen_reset is None)


@examples(75, print_blob=True)
@given(st.sampled_from([NARROW, WIDE]), st.lists(steps, min_size=12, max_size=50))
def test_everything_arrives_as_it_was_meant(limits: Limits, drawn: list[tuple[object, ...]]) -> None:
    pair = Pair(limits)
    for step in drawn:
        play(pair, step)
    pair.settle()
    for call in pair.calls.values():
        check(call)
    assert pair.pongs == pair.pings
    assert pair.server.is_settled
    assert pair.server.open_streams == sum(
        call.is_known and not call.is_over and call.trailers is None for call in pair.calls.values()
    )


def test_a_long_talk_in_small_pieces_arrives_whole() -> None:
    pair = Pair(NARROW)
    trailers: list[Field] = [(b"grpc-status", b"0")]
    pair.change(SettingCodes.INITIAL_WINDOW_SIZE, 1_000)
    for _ in range(40):
        pair.ask([(b"te", b"trailers")], is_last=False)
        call = list(pair.calls.values())[-1]
        for number in range(12):
            pair.add(call, 9_000, is_last=number == 11)
            pair.go_up(5_000)
            pair.respond(call, [])
            pair.send(call, 3_000)
            pair.go_down(700)
            pair.read()
            pair.consume(call)
        pair.go_up()
        pair.finish(call, trailers)
        pair.settle()
        check(call)
        assert call.has_ended
    assert sum(len(call.seen) for call in pair.calls.values()) == 40 * 12 * 3_000
    assert sum(len(call.heard) for call in pair.calls.values()) > 40 * 9_000
