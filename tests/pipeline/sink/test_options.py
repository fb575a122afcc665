"""Options of a writer: what they mean, and what is refused before anything is computed."""

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipeline.sink import batch_writer, stream_writer
from penstock.pipeline.sink.options import SinkOptions
from penstock.pipeline.source.errors import InvalidOption

MESSAGES = StructType([StructField("topic", StringType()), StructField("payload", StringType())])


def test_names_of_options_are_taken_in_any_case() -> None:
    options = SinkOptions.parse(
        {"ADDRESS": "https://host:8443", "retryfor": "0", "Timeout": "2.5", "topic": "a", "user": "ann"}
    )
    connection = options.connection
    assert (connection.address, connection.user, connection.password) == ("https://host:8443", "ann", None)
    assert (connection.retry_for_s, connection.timeout_s, options.topic) == (0.0, 2.5, "a")


def test_what_is_not_said_is_as_for_readers() -> None:
    options = SinkOptions.parse({"checkpointLocation": "/somewhere"})
    connection = options.connection
    assert (connection.address, connection.retry_for_s, connection.timeout_s) == (
        "http://127.0.0.1:8080",
        60.0,
        30.0,
    )
    assert options.topic is options.key is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"filter": "#"}, "no option filter for writing: The options are address, user"),
        ({"adress": "http://host"}, "no option adress for writing: did you mean address?"),
        ({"path": "/lake"}, "no path"),
        ({"address": "ftp://host"}, "option address: .* is no address"),
        ({"timeout": "0"}, "option timeout"),
        ({"timeout": "nan"}, "option timeout"),
        ({"retryFor": "soon"}, "option retryFor: 'soon' is no number"),
        ({"retryFor": "-1"}, "option retryFor"),
        ({"key": ""}, "option key"),
        ({"key": " a"}, "option key"),
        ({"key": "k" * 201}, "option key"),
        ({"key": "ä"}, "option key"),
        ({"caFile": "/no/such/file"}, "option caFile: /no/such/file: No such file"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        batch_writer(given, MESSAGES, overwrite=False)


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing", encoding="utf-8")
    with pytest.raises(InvalidOption, match="no certificates in"):
        batch_writer({"caFile": str(empty)}, MESSAGES, overwrite=False)


def test_topics_are_not_overwritten() -> None:
    with pytest.raises(InvalidOption, match="append"):
        batch_writer({}, MESSAGES, overwrite=True)


def test_a_stream_has_keys_of_its_own() -> None:
    with pytest.raises(InvalidOption, match="option key"):
        stream_writer({"key": "mine"}, MESSAGES)


def test_each_write_has_a_key_of_its_own_unless_it_is_given_one() -> None:
    keys = {batch_writer({}, MESSAGES, overwrite=False)._key for _ in range(2)}
    assert len(keys) == 2
    assert batch_writer({"key": "night 17"}, MESSAGES, overwrite=False)._key == "night 17"
