"""Reading of WebSocket frames (RFC 6455) of clients: the base of all readers, and the reader of byte streams.

No object is made per frame, since busy clients send many small ones. A byte stream is passed on as it
arrives, incomplete frames included, so neither frames nor messages use memory.
"""

from websockets.exceptions import ProtocolError
from websockets.frames import Close

from penstock.wire.websocket.encoding import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FINAL,
    PING,
    PONG,
    SMALL_BYTES,
    TEXT,
    TWO_BYTES,
    WHOLE_BINARY,
    CloseCode,
    FrameError,
)

try:
    from websockets.speedups import apply_mask
except ImportError:  # where it could not be compiled
    from websockets.utils import apply_mask

__all__ = ["KEY_BYTES", "MASKED", "FrameError", "FrameReader", "HeaderReader", "apply_mask", "turned"]

MASKED = 0x80
RESERVED = 0x70
KEY_BYTES = 4
OPCODES = (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG)


class HeaderReader:
    """Base class: reads headers and control frames.

    After `feed` of a subclass, `pings` has the payloads of pings and `close` that of the client's close
    frame; the caller clears `pings`. After `close` or `error` nothing more is read.
    """

    __slots__ = ("_is_amid", "_key", "_left", "_rest", "close", "error", "limit_bytes", "pings")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.pings: list[bytes] = []
        self.close: bytes | None = None
        self.error: FrameError | None = None
        self._is_amid = False  # a message whose last fragment has not come
        self._left = 0  # payload of the current frame that has not come
        self._key = b""  # that payload's mask, turned to where it continues
        self._rest = b""  # the beginning of a header, or of a control frame

    def _fail(self, error: FrameError) -> None:
        """Read no more. What led to the error is left behind: it would hold this reader."""
        self.error = FrameError(error.code, str(error))

    def _take_header(self, data: bytes, position: int) -> tuple[int, int, int] | None:
        """Return opcode, payload position and payload size of a frame; None if its header is incomplete."""
        first, second = data[position], data[position + 1]
        opcode = first & 0x0F
        is_final = bool(first & FINAL)
        size = second & 0x7F
        if first & RESERVED:
            self._check_reserved(first & RESERVED, opcode)
        if not second & MASKED:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "frames of a client must be masked")
        self._check_opcode(opcode)
        if opcode >= CLOSE and not (is_final and size <= SMALL_BYTES):
            raise FrameError(CloseCode.PROTOCOL_ERROR, "control frame too long or fragmented")
        start = position + 2
        if size > SMALL_BYTES:
            wide = 2 if size == TWO_BYTES else 8
            if len(data) < start + wide:
                return None
            size = int.from_bytes(data[start : start + wide], "big")
            start += wide
        if opcode < CLOSE:
            self._check_size(size)  # known from the header, before any of it is read
        start += KEY_BYTES
        if start > len(data):
            return None
        if opcode < CLOSE:
            self._on_header(opcode, first, size)
            self._is_amid = not is_final
        return opcode, start, size

    def _check_reserved(self, bits: int, opcode: int) -> None:
        raise FrameError(CloseCode.PROTOCOL_ERROR, "reserved bits must be 0")

    def _check_opcode(self, opcode: int) -> None:
        if opcode == CONTINUATION and not self._is_amid:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "continuation of nothing")
        if opcode in (TEXT, BINARY) and self._is_amid:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "new message before the end of the last")
        if opcode not in OPCODES:
            raise FrameError(CloseCode.PROTOCOL_ERROR, f"unknown opcode {opcode}")

    def _check_size(self, size: int) -> None:
        """Check the payload size of a data frame."""

    def _on_header(self, opcode: int, first: int, size: int) -> None:
        """A data frame begins; `_is_amid` is still that of the frame before."""

    def _on_control(self, opcode: int, key: bytes, masked: bytes) -> None:
        payload = apply_mask(masked, key)
        if opcode == PING:
            self.pings.append(payload)
        elif opcode == CLOSE:
            try:
                Close.parse(payload)
            except ProtocolError as error:
                raise FrameError(CloseCode.PROTOCOL_ERROR, str(error)) from None
            except UnicodeDecodeError:
                raise FrameError(CloseCode.INVALID_DATA, "close reason is not UTF-8") from None
            self.close = payload


class FrameReader(HeaderReader):
    """Finds the payload in a client's binary frames, however they are cut.

    Args:
        limit_bytes: of one frame; those that fit into the smallest header always pass.
    """

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        """Return all payload received, joined."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        parts: list[bytes] = []
        try:
            self._split(data, parts)
        except FrameError as error:  # earlier payload is valid and still passed on
            self._fail(error)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _split(self, data: bytes, parts: list[bytes]) -> None:
        start, key, end = 0, self._key, len(data)
        position = self._left
        if position:
            parts.append(apply_mask(data[:position], key))
        while position <= end - 2:
            size = data[position + 1] - MASKED
            if (
                data[position] == WHOLE_BINARY
                and 0 <= size <= SMALL_BYTES
                and position + 6 <= end
                and not self._is_amid
            ):
                start = position + 6
            elif (
                data[position] == WHOLE_BINARY
                and size == TWO_BYTES
                and position + 8 <= end
                and not self._is_amid
                and (size := data[position + 2] << 8 | data[position + 3]) <= self.limit_bytes
            ):
                start = position + 8
            else:
                header = self._take_header(data, position)
                if header is None:
                    break
                opcode, start, size = header
                if opcode >= CLOSE:
                    if start + size > end:
                        break
                    self._on_control(opcode, data[start - KEY_BYTES : start], data[start : start + size])
                    if self.close is not None:
                        return
                    position = start + size
                    continue
            position = start + size
            key = data[start - KEY_BYTES : start]
            parts.append(apply_mask(data[start:position], key))
        if position > end:
            self._key = turned(key, end - start)
            self._left = position - end
        else:
            self._left = 0
            self._rest = data[position:]

    def _check_opcode(self, opcode: int) -> None:
        if opcode == TEXT:
            raise FrameError(CloseCode.UNSUPPORTED_DATA, "text frame where binary frames belong")
        super()._check_opcode(opcode)

    def _check_size(self, size: int) -> None:
        if size > max(self.limit_bytes, SMALL_BYTES):
            text = f"frame of {size} bytes, limit {self.limit_bytes}"
            raise FrameError(CloseCode.MESSAGE_TOO_BIG, text)


def turned(key: bytes, size: int) -> bytes:
    """A mask where it continues behind this many bytes."""
    turn = size % KEY_BYTES
    return key[turn:] + key[:turn]
