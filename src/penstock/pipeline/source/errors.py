"""What can be wrong with reading topics as a table."""

from penstock.errors import PenstockError


class InvalidOption(PenstockError):
    """An option of `format("penstock")` is unknown, misspelt or out of range; the text names it."""

    code = "invalid-option"


class DataLoss(PenstockError):
    """Rows that were asked for are not there any more; the text names their offsets and the reason."""

    code = "data-loss"
