"""SASLprep (RFC 4013): names and passwords that look the same become the same text.

SCRAM needs it, because both sides compute with the text itself. Nothing else does: the password file, the
access list and plain passwords are compared as they are written.
"""

import stringprep
from unicodedata import ucd_3_2_0  # the version that stringprep is about

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def prepare(text: str, *, is_stored: bool) -> str:
    """Prepare a text by RFC 4013.

    Args:
        is_stored: refuse characters that Unicode 3.2 does not know, as RFC 4013 demands for text that is
        stored or hashed; text for a look-up may have them.

    Raises:
        ValueError: it holds a prohibited character, or nothing is left of it.
    """
    if text.isascii() and text.isprintable() and text:
        return text
    kept = (
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = ucd_3_2_0.normalize("NFKC", "".join(kept))
    if not prepared:
        raise ValueError("nothing is left of it")
    for char in prepared:
        if any(is_prohibited(char) for is_prohibited in _PROHIBITED):
            raise ValueError(f"it holds U+{ord(char):04X}, which is not allowed")
        if is_stored and stringprep.in_table_a1(char):
            raise ValueError(f"it holds U+{ord(char):04X}, which Unicode 3.2 does not have")
    _check_directions(prepared)
    return prepared


def _check_directions(text: str) -> None:
    """Refuse what could be shown in another order than it is written (RFC 3454 section 6)."""
    if not any(map(stringprep.in_table_d1, text)):
        return
    if any(map(stringprep.in_table_d2, text)):
        raise ValueError("it mixes writing from the left and from the right")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ValueError("it is written from the right, but does not begin and end like that")
