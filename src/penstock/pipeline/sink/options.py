"""The options of `format("penstock")` for writers."""

import ssl
from collections.abc import Mapping

from msgspec import Struct

from penstock.client.address import Address
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.errors import InvalidOption
from penstock.pipeline.source.options import check_names

HERE = "http://127.0.0.1:8080"

NAMES = ("address", "user", "password", "caFile", "topic", "key", "retryFor", "timeout")
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""What Spark hands on of its own."""
_MOST_KEY = 200


class SinkOptions(Struct, frozen=True, kw_only=True):
    """Where rows go, and what is said once for all of them."""

    connection: Connection
    topic: str | None = None
    """Of rows that have none."""
    key: str | None = None
    """What a batch is known by; the same one again publishes nothing."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Read what was given with `option`.

        Raises:
            InvalidOption: one of them is unknown or makes no sense.
        """
        given = {name.lower(): text for name, text in options.items()}
        if "path" in given:
            raise InvalidOption(
                "topics have no path: save() and start() take none; the column topic says where rows go"
            )
        check_names(sorted(given.keys() - _OF_SPARK), NAMES, " for writing")
        connection = Connection(
            address=_address(given.get("address", HERE)),
            user=given.get("user"),
            password=given.get("password"),
            ca_file=_certificates(given.get("cafile")),
            timeout_s=_seconds(given, "timeout", 30.0, can_be_zero=False),
            retry_for_s=_seconds(given, "retryFor", 60.0, can_be_zero=True),
        )
        return cls(connection=connection, topic=given.get("topic"), key=_key(given.get("key")))


def _address(text: str) -> str:
    try:
        Address.parse(text)
    except ValueError as error:
        raise InvalidOption(f"option address: {error}") from None
    return text


def _certificates(path: str | None) -> str | None:
    try:
        if path is not None:
            ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise InvalidOption(f"option caFile: there are no certificates in {path}") from None
    except OSError as error:
        raise InvalidOption(f"option caFile: {path}: {error.strerror}") from None
    return path


def _seconds(given: Mapping[str, str], name: str, default: float, *, can_be_zero: bool) -> float:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (0 <= seconds < float("inf")) or (seconds == 0 and not can_be_zero):
        raise InvalidOption(f"option {name}: {text!r} is no number of seconds")
    return seconds


def _key(text: str | None) -> str | None:
    if text is not None and not (
        0 < len(text) <= _MOST_KEY and text.isascii() and text.isprintable() and text == text.strip()
    ):
        raise InvalidOption(
            f"option key: a key has 1 to {_MOST_KEY} printable characters of ASCII, and no blanks around them"
        )
    return text
