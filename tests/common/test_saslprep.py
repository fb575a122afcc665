"""SASLprep with the examples of RFC 4013 and what stands in its tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.saslprep import prepare


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("a\u2003b", "a b"),
        ("Zoe\u0308", "Zo\u00eb"),
        ("\u0627\u0628", "\u0627\u0628"),
        ("\u06271\u0628", "\u06271\u0628"),
    ],
)
def test_text_is_brought_into_its_prepared_form(text: str, prepared: str) -> None:
    assert prepare(text, is_stored=True) == prepared
    assert prepare(text, is_stored=False) == prepared


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\u00ad",  # nothing is left
        "\x07",
        "a\0",
        "a\x7f",
        "\u06dd",
        "\ue000",  # private use
        "\ufdd0",  # no character
        "\ud800",  # half a character
        "\ufffd",
        "\u2ff0",
        "\u200e",  # changes the direction
        "\U000e0001",
        "\u06271",  # written from the right, but the end is not
        "1\u0627",
        "\u0627a\u0628",  # both directions
    ],
)
def test_what_could_mislead_is_refused(text: str) -> None:
    for is_stored in (True, False):
        with pytest.raises(ValueError):
            prepare(text, is_stored=is_stored)


def test_only_what_is_looked_up_may_have_characters_of_later_times() -> None:
    assert prepare("\U0001f600", is_stored=False) == "\U0001f600"
    with pytest.raises(ValueError, match=r"U\+1F600"):
        prepare("\U0001f600", is_stored=True)


@given(st.text(), st.booleans())
def test_preparing_what_is_prepared_changes_nothing(text: str, is_stored: bool) -> None:
    try:
        prepared = prepare(text, is_stored=is_stored)
    except ValueError:
        return
    assert prepare(prepared, is_stored=is_stored) == prepared
