"""Frames of the peer protocol: a message behind its length, four bytes with the highest first."""

from penstock.wire.peer.messages import MalformedMessage, Message, decode_message, encode_message

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 16 * 1_048_576
"""Of a message, by default: a window of 8 MiB with the topics and properties of its messages."""


def encode_frame(message: Message, limit_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """The bytes of a message with its length.

    Raises:
        ValueError: it is longer than the peer accepts.
    """
    body = encode_message(message)
    if len(body) > limit_bytes:
        raise ValueError(f"a frame of {len(body)} bytes, of which {limit_bytes} are allowed")
    return len(body).to_bytes(LENGTH_BYTES) + body


class FrameReader:
    """Reader of one connection: bytes in, messages out. After an error the connection cannot continue."""

    __slots__ = ("_limit_bytes", "_rest")

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        """Beginning of a frame whose end has not arrived."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait for the end of their frame."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Message]:
        """Messages whose last byte is in this data, in order.

        A length beyond the limit is refused before its body is buffered.

        Raises:
            MalformedMessage: a frame that is too long or not a message; those before it are lost as well, as
                with a connection that breaks.
        """
        messages: list[Message] = []
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed(self._rest, 0):
                return messages
            data, self._rest = bytes(self._rest), bytearray()
        view, start = memoryview(data), 0
        while (end := start + self._needed(data, start)) <= len(data):
            messages.append(decode_message(view[start + LENGTH_BYTES : end]))
            start = end
        self._rest += view[start:]
        return messages

    def _needed(self, data: bytes | bytearray, start: int) -> int:
        """Length of the frame that begins here, with its head; of the head alone, if that is not complete."""
        if len(data) - start < LENGTH_BYTES:
            return LENGTH_BYTES
        length = int.from_bytes(data[start : start + LENGTH_BYTES])
        if not 0 < length <= self._limit_bytes:
            raise MalformedMessage(f"a frame of {length} bytes; 1 to {self._limit_bytes} are allowed")
        return LENGTH_BYTES + length
