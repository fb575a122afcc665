"""Answers of the server, asked for by their paths and read as values."""

from typing import Any, Protocol, TypeVar

import msgspec

from penstock.client import ConnectionRefused

T = TypeVar("T")


class Asking(Protocol):
    """A client, as far as it is needed for that."""

    def get(self, path: str, **parameters: Any) -> dict[str, Any]: ...


def read_answer(answer: object, kind: type[T]) -> T:
    """An answer as a value.

    Raises:
        ConnectionRefused: whoever gave it is no Penstock server.
    """
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ConnectionRefused(f"this is not what a Penstock server answers: {error}") from None
