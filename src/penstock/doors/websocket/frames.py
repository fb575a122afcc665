"""WebSocket frames (RFC 6455) as a stream of bytes: a client's frames in, payload out, and the way back.

Payload is handed on as it comes, also that of a frame or message that is not whole yet, so neither can make
memory grow. Nothing here makes an object per frame: small frames are what a busy client sends most of.
Compression was never agreed on, so the reserved bits are always zero.
"""

import struct

from websockets.exceptions import ProtocolError
from websockets.frames import Close, CloseCode

try:
    from websockets.speedups import apply_mask
except ImportError:  # where it could not be compiled
    from websockets.utils import apply_mask

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FINAL = 0x80
MASKED = 0x80
RESERVED = 0x70
WHOLE_BINARY = FINAL | BINARY
SMALL_BYTES = 125
"""What a frame can hold whose length fits into its second byte; every control frame does."""
KEY_BYTES = 4
OPCODES = (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG)

_SMALL_HEADERS = tuple(bytes((WHOLE_BINARY, size)) for size in range(SMALL_BYTES + 1))


class FrameError(Exception):
    """A peer broke the protocol; the connection ends with this close code."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class FrameReader:
    """Finds the payload in a client's frames, however they are cut.

    After `feed`, `ping` holds what the latest ping asks back and `close` what the client's close frame said;
    whoever acts on a ping sets it to None again. After `close` or `error` nothing more is read.
    """

    __slots__ = ("_is_amid", "_key", "_left", "_rest", "close", "error", "limit_bytes", "ping")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes  # of one frame; those that fit into the smallest header always pass
        self.ping: bytes | None = None
        self.close: bytes | None = None
        self.error: FrameError | None = None
        self._is_amid = False  # a message whose last fragment has not come
        self._left = 0  # payload of the current frame that has not come
        self._key = b""  # that payload's mask, turned to where it goes on
        self._rest = b""  # the beginning of a header, or of a control frame

    def feed(self, data: bytes) -> bytes:
        """All payload that has come, joined."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        parts: list[bytes] = []
        try:
            self._split(data, parts)
        except FrameError as error:
            # What came before it is valid and still handed on. Its traceback would hold this reader.
            self.error = error.with_traceback(None)
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
            turn = (end - start) % KEY_BYTES
            self._key = key[turn:] + key[:turn]
            self._left = position - end
        else:
            self._left = 0
            self._rest = data[position:]

    def _take_header(self, data: bytes, position: int) -> tuple[int, int, int] | None:
        """What a frame is, where its payload begins and how long it is; None if that is not known yet."""
        opcode = data[position] & 0x0F
        is_final = bool(data[position] & FINAL)
        size = data[position + 1] & 0x7F
        if data[position] & RESERVED:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "reserved bits must be 0")
        if not data[position + 1] & MASKED:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "frames of a client must be masked")
        self._check_opcode(opcode)
        if opcode >= CLOSE and not (is_final and size <= SMALL_BYTES):
            raise FrameError(CloseCode.PROTOCOL_ERROR, "control frame too long or fragmented")
        start = position + 2
        if size > SMALL_BYTES:
            wide = 2 if size == SMALL_BYTES + 1 else 8
            if len(data) < start + wide:
                return None
            size = int.from_bytes(data[start : start + wide], "big")
            start += wide
            if size > max(self.limit_bytes, SMALL_BYTES):  # known from the header, before any of it is read
                text = f"frame of {size} bytes, limit {self.limit_bytes}"
                raise FrameError(CloseCode.MESSAGE_TOO_BIG, text)
        start += KEY_BYTES
        if start > len(data):
            return None
        if opcode < CLOSE:
            self._is_amid = not is_final
        return opcode, start, size

    def _check_opcode(self, opcode: int) -> None:
        if opcode == TEXT:
            raise FrameError(CloseCode.UNSUPPORTED_DATA, "text frame where binary frames belong")
        if opcode == CONTINUATION and not self._is_amid:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "continuation of nothing")
        if opcode == BINARY and self._is_amid:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "new message before the end of the last")
        if opcode not in OPCODES:
            raise FrameError(CloseCode.PROTOCOL_ERROR, f"unknown opcode {opcode}")

    def _on_control(self, opcode: int, key: bytes, masked: bytes) -> None:
        payload = apply_mask(masked, key)
        if opcode == PING:
            self.ping = payload  # the latest is the one to answer (RFC 6455, 5.5.3)
        elif opcode == CLOSE:
            try:
                Close.parse(payload)
            except ProtocolError as error:
                raise FrameError(CloseCode.PROTOCOL_ERROR, str(error)) from None
            except UnicodeDecodeError:
                raise FrameError(CloseCode.INVALID_DATA, "close reason is not UTF-8") from None
            self.close = payload


def binary_header(size: int) -> bytes:
    """What a server writes before so many bytes to make them one binary frame."""
    if size <= SMALL_BYTES:
        return _SMALL_HEADERS[size]
    if size < 0x10000:
        return struct.pack("!BBH", WHOLE_BINARY, SMALL_BYTES + 1, size)
    return struct.pack("!BBQ", WHOLE_BINARY, SMALL_BYTES + 2, size)


def control_frame(opcode: int, payload: bytes) -> bytes:
    """A whole control frame of a server."""
    return bytes((FINAL | opcode, len(payload))) + payload


def close_payload(code: CloseCode, text: str = "") -> bytes:
    """What a close frame says; the text is cut to what fits."""
    return code.to_bytes(2, "big") + text.encode()[: SMALL_BYTES - 2]
