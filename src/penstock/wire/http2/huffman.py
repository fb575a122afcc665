"""Huffman coding of header text (RFC 7541 section 5.2 and appendix B), one way: ours is sent as it is.

The decoder takes a byte at a time: where it stands in the tree of codes, and which symbols end on the way.
There are at most 65,536 such steps, of which real traffic takes a few hundred; each is worked out when it is
first taken. What is remembered are steps and never text, so nobody's secrets are among it.
"""

from penstock.wire.http2.errors import CompressionFault

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
    """Where a string may end: behind a symbol, or less than eight bits, all ones, behind it."""
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
