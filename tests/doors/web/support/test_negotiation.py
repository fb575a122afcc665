"""Which of several kinds a caller gets, by what it says it accepts."""

import pytest

from penstock.doors.web.support.negotiation import preferred

OFFERS = ("application/json", "application/vnd.apache.arrow.stream")
JSON, ARROW = OFFERS


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
