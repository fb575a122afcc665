"""Tables of HPACK: the static header fields (RFC 7541 appendix A) and Huffman decoding (appendix B).

We send no Huffman codes. The decoder takes a byte at a time: from a node of the code tree to the next,
with the symbols that end on the way. There are at most 65,536 such steps, of which real traffic needs a
few hundred; each is computed at its first use. The cache holds steps, never text, so it holds no secrets.
"""

from penstock.wire.http2.errors import CompressionFault

Field = tuple[bytes, bytes]
"""Name and value of a header field."""

FIELDS: tuple[Field, ...] = (
    (b"", b""),  # index 0 is not used
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
)

LAST = len(FIELDS) - 1
FIELD_INDEXES = {field: index for index, field in enumerate(FIELDS) if index}
NAME_INDEXES = {FIELDS[index][0]: index for index in range(LAST, 0, -1)}


_LENGTHS = """
    13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28 28 28 28 28 28 28 28 28
     6 10 10 12 13  6  8 11 10 10  8 11  8  6  6  6  5  5  5  6  6  6  6  6  6  6  7  8 15  6 12 10
    13  6  7  7  7  7  7  7  7  7  7  7  7  7  7  7  7  7  7  7  7  7  7  7  8  7  8 13 19 13 14  6
    15  5  6  5  6  5  6  6  6  5  7  7  6  6  6  5  6  7  6  5  5  6  7  7  7  7  7 15 11 14 13 28
    20 22 20 20 22 22 22 23 22 23 23 23 23 23 24 23 24 24 22 23 24 23 23 23 23 21 22 23 22 23 23 24
    22 21 20 22 22 23 23 21 23 22 22 24 21 22 23 23 21 21 22 21 23 22 23 23 20 22 22 22 23 22 22 23
    26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24 21 21 26 26 28 27 27 27
    20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23 26 27 26 26 27 27 27 27 27 28 27 27 27 27 27 26
    30
"""
"""Bits of the code of each byte, and last of the end of string: the codes themselves follow from these."""
_END_OF_STRING = 256
_MAX_PADDING_BITS = 7

_Tree = list[list[int]]
"""Inner nodes: where a 0 and a 1 lead. Symbols stand there as their complement, which is below zero."""


def _plant() -> _Tree:
    """The tree of codes: the shorter the earlier, and among equals the smaller symbol."""
    lengths = [int(length) for length in _LENGTHS.split()]
    tree: _Tree = [[0, 0]]
    code = bits = 0
    for symbol in sorted(range(len(lengths)), key=lambda symbol: (lengths[symbol], symbol)):
        code <<= lengths[symbol] - bits
        bits = lengths[symbol]
        node = 0
        for shift in range(bits - 1, 0, -1):
            side = code >> shift & 1
            if not tree[node][side]:
                tree.append([0, 0])
                tree[node][side] = len(tree) - 1
            node = tree[node][side]
        tree[node][code & 1] = ~symbol
        code += 1
    return tree


class _Steps(dict[int, tuple[int, bytes]]):
    """By node (times 256) and byte: the next node (times 256) and the symbols that end on the way."""

    def __init__(self, tree: _Tree) -> None:
        super().__init__()
        self._tree = tree

    def __missing__(self, key: int) -> tuple[int, bytes]:
        node, symbols = key >> 8, bytearray()
        for shift in range(7, -1, -1):
            node = self._tree[node][key >> shift & 1]
            if node < 0:
                if ~node == _END_OF_STRING:
                    raise CompressionFault("end of string within a string")  # section 5.2
                symbols.append(~node)
                node = 0
        step = self[key] = (node << 8, bytes(symbols))
        return step


def _endings(tree: _Tree) -> frozenset[int]:
    """States in which a string may end: after a symbol, or less than eight one bits after it."""
    nodes = [0]
    for _ in range(_MAX_PADDING_BITS):
        nodes.append(tree[nodes[-1]][1])
    return frozenset(node << 8 for node in nodes)


_TREE = _plant()
_STEPS = _Steps(_TREE)
_ENDINGS = _endings(_TREE)


def decode_huffman(data: bytes) -> bytes:
    """The text that was coded.

    Raises:
        CompressionFault: it has the end of string within it, or ends within a symbol.
    """
    steps, place, parts = _STEPS, 0, []
    for byte in data:
        place, symbols = steps[place | byte]
        parts.append(symbols)
    if place not in _ENDINGS:
        raise CompressionFault("padding of a string is not the end of string")  # section 5.2
    return b"".join(parts)
