"""Strict decoding of JSON from clients; apart from `json_body`, which loads FastAPI."""

from typing import TypeVar

from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from penstock.errors import InvalidRequest

T = TypeVar("T")


def decode(decoder: Decoder[T], text: bytes | Raw, where: str = "") -> T:
    """Decode a text.

    Args:
        where: prefix of the error text.

    Raises:
        InvalidRequest: not JSON, or not of the decoder's type.
    """
    try:
        return decoder.decode(text)
    except DecodeError as error:
        raise InvalidRequest(f"{where}{error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{where}JSON is UTF-8, and this is not") from None
    except RecursionError:
        raise InvalidRequest(f"{where}this JSON is nested too deeply") from None
