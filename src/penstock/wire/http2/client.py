"""Client side of one HTTP/2 connection (RFC 9113), as far as gRPC needs it: no push, no priorities.

`Endpoint` has what both sides do. The owner starts requests, each on a stream of its own, and `feed` returns
what becomes of them. A call is over with an event that is its last: `ResponseStarted` or `BodyReceived` with
`is_last`, `TrailersReceived`, `StreamReset` or `RequestUnprocessed`. If the response ends before the request,
the rest of the request is dropped and the server gets RST_STREAM, as gRPC wants it.

A request beyond the server's limit is refused (`StreamRefused`), not queued: the owner has the deadlines, and
other connections. `free_streams` says how many may be started. After `error` all calls are over without an
event; the server may or may not have processed them.
"""

from penstock.wire.http2.endpoint import Endpoint
from penstock.wire.http2.errors import ErrorCode, MalformedHead, StreamFault, StreamRefused
from penstock.wire.http2.events import RequestUnprocessed, ResponseStarted, StreamReset, TrailersReceived
from penstock.wire.http2.frames import (
    MAX_STREAM_ID,
    PREFACE,
    FrameReader,
    Setting,
    check_length,
    decode_number,
    encode_go_away,
    encode_limits,
    protocol_error,
)
from penstock.wire.http2.limits import TOO_LARGE_COST, Limits
from penstock.wire.http2.streams import BEGUN, FINISHED, Stream

STREAMS_BEFORE_SETTINGS = 100
"""Requests that may be open before the server's limit is known: no server should have a lower one (section
6.5.2), and one that has refuses them unprocessed."""
_SWITCHING_PROTOCOLS = 101
_FIRST_FINAL_STATUS = 200


class ClientConnection(Endpoint):
    """One server: requests to it, and its frames in, events out."""

    __slots__ = ("_goodbye_id", "_is_leaving", "_next_id", "_server_limit", "_streams_limit")

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        greeting = PREFACE + encode_limits(limits, is_client=True)
        super().__init__(limits, FrameReader(limits.frame_bytes, has_preface=True), greeting)
        self._next_id = 1
        self._server_limit = MAX_STREAM_ID  # of open streams; none, unless its settings have one
        self._streams_limit = min(limits.streams, STREAMS_BEFORE_SETTINGS)
        self._is_leaving = False  # one side has said goodbye
        self._goodbye_id = MAX_STREAM_ID  # the last stream that the server processes

    @property
    def is_leaving(self) -> bool:
        """One side has said goodbye: no more requests can be started, open ones continue."""
        return self._is_leaving

    @property
    def free_streams(self) -> int:
        """Number of requests that can be started now."""
        if self.error is not None or self._is_leaving or self._next_id > MAX_STREAM_ID:
            return 0
        return max(0, self._streams_limit - len(self._streams))

    def request(self, block: bytes, *, is_last: bool = False) -> int:
        """Start a request with encoded header fields, and return its stream; if `is_last`, that is all of it.

        Raises:
            StreamRefused: none can be started now.
        """
        stream = self._start()
        self._outflow.headers(stream.id, block, is_last=is_last)
        if is_last:
            stream.progress = FINISHED
        return stream.id

    def request_whole(self, block: bytes, body: bytes) -> int:
        """Send a whole request, its header fields and a body, and return its stream.

        Raises:
            StreamRefused: none can be started now.
        """
        stream = self._start()
        self._outflow.headers(stream.id, block, is_last=False)
        if self._outflow.send_last(stream, body):
            stream.progress = FINISHED
        else:
            self.send(stream.id, body)
            self.finish(stream.id)
        return stream.id

    def go_away(self) -> None:
        """Start no more requests and say so; the owner closes the connection when no stream is open."""
        if self.error is None and not self._is_leaving:
            self._is_leaving = True
            self._outflow.write(encode_go_away(self._last_processed_id(), ErrorCode.NO_ERROR))

    def _start(self) -> Stream:
        if not self.free_streams:
            raise StreamRefused(self._refusal())
        stream_id = self._next_id
        self._next_id = stream_id + 2
        self._table.note_new(stream_id)
        stream = Stream(stream_id, self._outflow.initial_window, self._limits.stream_window_bytes, True)
        stream.has_head = False
        stream.progress = BEGUN
        self._streams[stream_id] = stream
        return stream

    def _refusal(self) -> str:
        if self.error is not None:
            return "the connection has failed; open another one"
        if self._is_leaving:
            return "the connection is closing; open another one"
        if self._next_id > MAX_STREAM_ID:
            return "all stream identifiers are used; open another connection"  # section 5.1.1
        return (
            f"{len(self._streams)} requests are open, {self._streams_limit} are allowed; wait for one to end"
        )

    def _last_processed_id(self) -> int:
        return 0  # servers open no streams

    def _on_sent(self, stream: Stream) -> None:
        """All of a request is written; its response is still to come."""

    def _end(self, stream: Stream) -> None:
        """The response is whole: the call is over."""
        if stream.progress != FINISHED or stream.waiting_bytes:
            self._reset(stream.id, ErrorCode.NO_ERROR)
        self._close(stream)

    # Frames of the server

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.has_head:
            self._inflow.take(len(payload))
            self._inflow.give_back(len(payload))
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "DATA before HEADERS")  # section 8.1
        super()._on_data(flags, stream_id, payload)
        if stream is not None and not stream.is_receiving:
            self._end(stream)

    def _on_first_block(self, stream_id: int, block: bytes, is_last: bool) -> None:
        raise protocol_error(f"HEADERS on stream {stream_id}, which is idle")  # section 5.1

    def _on_next_block(self, stream: Stream, block: bytes, is_last: bool) -> None:
        if not stream.has_head:
            self._on_head(stream, block, is_last)
        else:
            fields = self._take_trailers(stream, block, is_last)
            self._events.append(TrailersReceived(stream.id, tuple(fields)))
        if not stream.is_receiving:
            self._end(stream)

    def _on_head(self, stream: Stream, block: bytes, is_last: bool) -> None:
        head = self._blocks.response(block)
        if head is None:
            self._control.use(self._now, TOO_LARGE_COST)
            raise MalformedHead("header fields are too large")
        if head.status < _FIRST_FINAL_STATUS:
            self._control.use(self._now)
            if is_last or head.status == _SWITCHING_PROTOCOLS:  # sections 8.1, 8.6
                raise MalformedHead("informational response that ends the stream, or switches protocols")
            return
        if is_last and head.content_length:
            raise MalformedHead("no body where one was announced")
        stream.has_head = True
        stream.is_receiving = not is_last
        stream.body_left = head.content_length
        self._events.append(ResponseStarted(stream.id, head, is_last))

    def _on_reset(self, stream_id: int, payload: bytes) -> None:
        self._light.use(self._now)  # light: a server may send one for each call
        check_length(payload, 4, "RST_STREAM")
        self._table.check_known(stream_id)
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        self._close(stream)
        self._on_ended(stream, decode_number(payload))

    def _on_ended(self, stream: Stream, code: int) -> None:
        """The server has ended a call. One that has a head was processed, whatever the server says."""
        if code == ErrorCode.REFUSED_STREAM and not stream.has_head:  # section 8.7
            self._events.append(RequestUnprocessed(stream.id))
        else:
            self._events.append(StreamReset(stream.id, code))

    def _apply(self, settings: dict[int, int]) -> None:
        if settings.get(Setting.ENABLE_PUSH):
            raise protocol_error("ENABLE_PUSH from a server")  # section 6.5.2
        self._server_limit = settings.get(Setting.MAX_CONCURRENT_STREAMS, self._server_limit)
        self._streams_limit = min(self._server_limit, self._limits.streams)
        super()._apply(settings)

    def _on_goodbye(self, last_id: int) -> None:
        if last_id > self._goodbye_id or (last_id and not last_id & 1):
            raise protocol_error(f"GOAWAY with {last_id} as the last stream")  # section 6.8
        self._goodbye_id = last_id
        self._is_leaving = True
        for stream in [each for each in self._streams.values() if each.id > last_id]:
            self._close(stream)
            self._on_ended(stream, ErrorCode.REFUSED_STREAM)
