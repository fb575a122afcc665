"""Message reader of WebSockets: text as `str`, checked while it arrives, and binary as `bytes`.

Only the part received of one message is buffered, at most its limit; a compressed one is inflated while it
arrives. Messages that arrive whole, as nearly all do, are cut out of the chunk.
"""

from codecs import utf_8_decode
from sys import maxsize

from penstock.wire.websocket.deflate import Deflate, Inflater
from penstock.wire.websocket.encoding import (
    CLOSE,
    COMPRESSED,
    CONTINUATION,
    PING,
    SMALL_BYTES,
    TEXT,
    TWO_BYTES,
    WHOLE_TEXT,
    CloseCode,
    FrameError,
    Pinged,
)
from penstock.wire.websocket.frames import KEY_BYTES, MASKED, HeaderReader, apply_mask, turned

Messages = list[str | bytes | Pinged]


class MessageReader(HeaderReader):
    """Joins a client's frames into messages.

    `ping_places` has, for each ping of the latest `feed`, the number of messages before it. `is_stopped` is
    True if that feed has inflated so much that it left messages to the next one, even one of no bytes.

    Args:
        limit_bytes: of a whole message, compressed and inflated.
        deflate: the agreed compression, if any.
        step_bytes: inflated by one feed before it stops; its last message may be larger.
    """

    __slots__ = (
        "_checked",
        "_deflate",
        "_inflated_bytes",
        "_inflater",
        "_is_text",
        "_joined",
        "_messages",
        "_step_bytes",
        "_taken_bytes",
        "is_stopped",
        "ping_places",
    )

    def __init__(
        self, limit_bytes: int, *, deflate: Deflate | None = None, step_bytes: int = maxsize
    ) -> None:
        super().__init__(limit_bytes)
        self.ping_places: list[int] = []
        self.is_stopped = False
        self._inflated_bytes = 0  # by the present feed
        self._step_bytes = step_bytes
        self._deflate = deflate
        self._messages: Messages = []  # of the present feed
        self._is_text = False
        self._taken_bytes = 0  # of all frames of the message so far, the present one included
        self._joined = bytearray()  # received part of an incomplete message
        self._checked = 0  # how much of that is known to be UTF-8
        self._inflater: Inflater | None = None

    def feed(self, data: bytes) -> Messages:
        """The messages that are whole now, in order."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        messages = self._messages
        self.ping_places.clear()
        self.is_stopped = False
        self._inflated_bytes = 0
        try:
            self._split(data, messages)
        except FrameError as error:  # earlier messages are valid and still passed on
            self._fail(error)
        except UnicodeDecodeError:
            self._fail(FrameError(CloseCode.INVALID_DATA, "text is not UTF-8"))
        self._messages = []
        return messages

    def _split(self, data: bytes, messages: Messages) -> None:
        position, end = self._left, len(data)
        if position:
            self._read_more(data)
            if position > end:
                return
        limit = self.limit_bytes
        while position <= end - 2:
            size, start = data[position + 1] - MASKED, position + 6
            if size == TWO_BYTES and position + 4 <= end:
                size = data[position + 2] << 8 | data[position + 3]
                start += 2
            elif size > SMALL_BYTES:
                size = -1  # a large one
            if (
                data[position] == WHOLE_TEXT
                and 0 <= size <= limit
                and start + size <= end
                and not self._is_amid
            ):
                position = start + size
                messages.append(apply_mask(data[start:position], data[start - KEY_BYTES : start]).decode())
            else:
                stop = self._take_frame(data, position)
                if stop is None:
                    break
                position = stop
                if position > end or self.close is not None:
                    return
                if self._inflated_bytes > self._step_bytes:
                    self.is_stopped = position < end
                    break
        self._rest = data[position:]

    def _read_more(self, data: bytes) -> None:
        """Read more of a frame whose header was read before."""
        piece = apply_mask(data[: self._left], self._key)
        self._left -= len(piece)
        self._key = turned(self._key, len(piece))
        self._gather(piece, is_last=not self._left and not self._is_amid)

    def _take_frame(self, data: bytes, position: int) -> int | None:
        """Read a frame, or what has arrived of it, and return where it ends; None if that is unknown."""
        header = self._take_header(data, position)
        if header is None:
            return None
        opcode, start, size = header
        stop, key = start + size, data[start - KEY_BYTES : start]
        if opcode >= CLOSE:
            if stop > len(data):
                return None
            self._on_control(opcode, key, data[start:stop])
            return stop
        piece = apply_mask(data[start:stop], key)
        self._left = size - len(piece)
        self._key = turned(key, len(piece))
        self._gather(piece, is_last=not self._left and not self._is_amid)
        return stop

    def _gather(self, piece: bytes, *, is_last: bool) -> None:
        """Take more of a message; with the last piece it is whole."""
        if self._inflater is not None:
            piece = self._inflater.feed(piece, is_last=is_last)
            self._inflated_bytes += len(piece)
        if not is_last:
            self._joined += piece
            if self._is_text:
                self._check_text()
            return
        whole: bytes | bytearray = piece
        if self._joined:
            self._joined += piece
            whole, self._joined = self._joined, bytearray()
        self._inflater = None
        self._checked = 0
        self._messages.append(whole.decode() if self._is_text else bytes(whole))

    def _check_text(self) -> None:
        """Let no more come of a text that cannot become one."""
        with memoryview(self._joined)[self._checked :] as view:
            used = utf_8_decode(view, "strict", False)[1]
            begun = bytes(view[used:])
        self._checked += used
        if begun[:1] == b"\xed" and begun[1:] >= b"\xa0":  # a surrogate, which only its third byte would show
            raise FrameError(CloseCode.INVALID_DATA, "text is not UTF-8")

    # What every reader decides for itself

    def _check_reserved(self, bits: int, opcode: int) -> None:
        is_beginning = CONTINUATION < opcode < CLOSE  # RFC 7692, 6.1
        if self._deflate is None or bits != COMPRESSED or not is_beginning:
            super()._check_reserved(bits, opcode)

    def _check_size(self, size: int) -> None:
        taken = self._taken_bytes if self._is_amid else 0
        if taken + size > self.limit_bytes:
            text = f"message of at least {taken + size} bytes, limit {self.limit_bytes}"
            raise FrameError(CloseCode.MESSAGE_TOO_BIG, text)

    def _on_header(self, opcode: int, first: int, size: int) -> None:
        if opcode == CONTINUATION:
            self._taken_bytes += size
            return
        self._taken_bytes = size
        self._is_text = opcode == TEXT
        if first & COMPRESSED and self._deflate is not None:
            self._inflater = Inflater(self._deflate, self.limit_bytes)

    def _on_control(self, opcode: int, key: bytes, masked: bytes) -> None:
        super()._on_control(opcode, key, masked)
        if opcode == PING:
            self.ping_places.append(len(self._messages))
