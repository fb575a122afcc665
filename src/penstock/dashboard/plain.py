"""Text from elsewhere, to be put where Streamlit reads markdown."""

import re

_MEANT = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")


def plain(text: str) -> str:
    """The text in one line, with every mark escaped that markdown would take for its own."""
    return _MEANT.sub(r"\\\1", " ".join(text.split()))
