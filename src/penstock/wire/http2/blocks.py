"""Header blocks of one connection: put together from their frames, decoded, and made heads of requests.

Clients send the same block with every call of the same kind, once their fields stand in the table. Such a
block is decoded and checked once, until the table changes.
"""

from penstock.wire.http2.errors import ConnectionFault, ErrorCode
from penstock.wire.http2.headers import MalformedRequest, RequestHead, check_trailers, request_head
from penstock.wire.http2.hpack import Decoder
from penstock.wire.http2.limits import Limits
from penstock.wire.http2.static_table import Field

_KNOWN_LIMIT = 64
_KNOWN_BLOCK_BYTES = 256


class BlockReader:
    """Takes blocks in the order in which they came; a block that nobody wants has to be taken, too."""

    __slots__ = ("_decoder", "_known", "_limit_bytes", "_parts", "_size_bytes")

    def __init__(self, limits: Limits) -> None:
        self._decoder = Decoder(limits.header_list_bytes)
        self._limit_bytes = limits.header_block_bytes
        self._known: dict[bytes, RequestHead] = {}
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def add(self, fragment: bytes) -> None:
        """Keep a part of a block that is not whole yet.

        Raises:
            ConnectionFault: it is too long already.
        """
        self._size_bytes += len(fragment)
        self._check_size(self._size_bytes)
        self._parts.append(fragment)

    def join(self) -> bytes:
        """All parts that were kept; there are none afterwards."""
        block = b"".join(self._parts)
        self._parts, self._size_bytes = [], 0
        return block

    def head(self, block: bytes) -> RequestHead | None:
        """The head of a request; None if it is too large.

        Raises:
            MalformedRequest: no request may be like this.
            ConnectionFault: the block cannot be decoded.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        before = self._decoder.changes
        fields = self.decode(block)
        if fields is None:
            return None
        head = request_head(fields)
        if before == self._decoder.changes and len(block) <= _KNOWN_BLOCK_BYTES:
            if len(self._known) >= _KNOWN_LIMIT:
                self._known.clear()
            self._known[block] = head
        return head

    def decode(self, block: bytes) -> list[Field] | None:
        """The fields alone, also if nobody wants them; None if they are too large.

        Raises:
            ConnectionFault: the block cannot be decoded, or is too long for that.
        """
        self._check_size(len(block))
        before = self._decoder.changes
        fields = self._decoder.decode(block)
        if before != self._decoder.changes:
            self._known.clear()
        return fields

    def trailers(self, block: bytes) -> None:
        """Check what stands behind a body; a server of calls has no use for it.

        Raises:
            MalformedRequest: no request may end like this.
            ConnectionFault: the block cannot be decoded.
        """
        fields = self.decode(block)
        if fields is None:
            raise MalformedRequest("trailers are too large")
        check_trailers(fields)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            text = f"header block of more than {self._limit_bytes} bytes"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text)
