"""The bytes of responses, and the choice of their media type."""

import pytest

from penstock.net.http.response import DateHeader, build, http_date, preferred

OFFERS = ("application/json", "application/vnd.apache.arrow.stream")
JSON, ARROW = OFFERS


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


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (ARROW, ARROW),
        (ARROW.upper(), ARROW),
        (f"{ARROW}, application/json", JSON),
        (f"{ARROW}, application/json;q=0.9", ARROW),
        (f"{ARROW}, */*;q=0.1", ARROW),
        (f"{ARROW};q=0, */*", JSON),
        ("application/json;q=0, */*;q=0.5", ARROW),
        ("application/json; charset=utf-8; q=0.5", JSON),
        ("text/html", None),
        ("text/*, image/png", None),
        ("*/*;q=0", None),
        ("application/json;q=nonsense", None),
        (",;,", None),
    ],
)
def test_the_offer_that_is_liked_best_is_chosen(accept: str | None, chosen: str | None) -> None:
    assert preferred(accept, OFFERS) == chosen
