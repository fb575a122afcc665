"""The errors of this command; their texts are for the person who typed it."""


class BenchError(Exception):
    """The bench cannot start or go on, and what to do about it."""


class WrongOption(BenchError):
    """An option asks for something that does not exist or is not allowed."""
