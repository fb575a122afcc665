"""Errors of the bench; their texts are for the person who started it."""


class BenchError(Exception):
    """The bench cannot start or continue; the text says what to do."""


class WrongOption(BenchError):
    """An option names something that does not exist or is not allowed."""
