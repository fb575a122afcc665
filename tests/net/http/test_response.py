"""The bytes of answers."""

import pytest

from penstock.net.http.response import DateHeader, build, http_date


def test_an_answer_is_one_piece_of_bytes() -> None:
    answer = build(200, b"{}", "application/json", [("X-A", "é")], b"date: now\r\n")
    assert answer == (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\n"
        b"content-length: 2\r\n"
        b"date: now\r\nX-A: \xe9\r\n\r\n{}"
    )


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\0b", "a\x7f", "€"])
def test_what_would_end_a_header_is_never_written(value: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be|encode"):
        build(200, b"", "text/plain", [("X", value)], b"")
    with pytest.raises(ValueError, match=r"cannot be|encode"):
        build(200, b"", value, (), b"")


def test_dates_are_written_as_http_writes_them() -> None:
    assert http_date(784_111_777) == "Sun, 06 Nov 1994 08:49:37 GMT"  # RFC 9110, 5.6.7
    dates = DateHeader()
    assert dates.line(0) == b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
    assert dates.line(1) == b"date: Thu, 01 Jan 1970 00:00:01 GMT\r\n"
