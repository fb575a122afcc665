"""JSON lines: values are cut where lines end, and nowhere else."""

import pytest

from penstock.wire.rows import lines_of


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b"\n\r\n  \n", []),
        (b"{}", [(1, b"{}")]),
        (b"{}\n", [(1, b"{}")]),
        (b'{"a":1}\r\n\r\n {"b":2} ', [(1, b'{"a":1}'), (3, b'{"b":2}')]),
        (b'"\\n"\n"\xe2\x80\xa8"\n"\x0b"', [(1, b'"\\n"'), (2, b'"\xe2\x80\xa8"'), (3, b'"\x0b"')]),
        (b"[1,\n2]", [(1, b"[1,"), (2, b"2]")]),
    ],
)
def test_each_line_that_is_not_blank_is_a_value(body: bytes, expected: list[tuple[int, bytes]]) -> None:
    assert list(lines_of(body)) == expected
