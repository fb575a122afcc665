"""JSON from outside, decoded into what it should be, or refused."""

from typing import TypeVar

from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from penstock.errors import InvalidRequest

T = TypeVar("T")


def decode(decoder: Decoder[T], text: bytes | Raw, where: str = "") -> T:
    """What a text says.

    Args:
        where: what the complaint begins with.

    Raises:
        InvalidRequest: it is no JSON, or says something else.
    """
    try:
        return decoder.decode(text)
    except DecodeError as error:
        raise InvalidRequest(f"{where}{error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{where}JSON is UTF-8, and this is not") from None
    except RecursionError:
        raise InvalidRequest(f"{where}this JSON is nested too deeply") from None
