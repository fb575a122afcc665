"""Options of `format("penstock")`: their meaning, and what is refused before any request."""

import os
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.common.cursor import Cursor, Position
from penstock.spark.datasource import batch_writer, stream_writer
from penstock.spark.errors import InvalidOption
from penstock.spark.options import READ_NAMES, ReadOptions, read_options, write_options
from penstock.wire.arrow import LOG_COLUMNS

CURSOR = Cursor((Position("ab" * 8, 1, 7),)).encode()


def options(given: dict[str, str], *, is_stream: bool = True) -> ReadOptions:
    return read_options(given, is_stream=is_stream)


def refusal(given: dict[str, str], *, is_stream: bool = True) -> str:
    with pytest.raises(InvalidOption) as caught:
        read_options(given, is_stream=is_stream)
    return str(caught.value)


def test_nothing_said_reads_the_whole_log_of_this_machine() -> None:
    said = options({})
    assert said.connection is not None
    assert said.connection.address == "http://127.0.0.1:8080"
    assert (said.filters, said.columns) == ((), LOG_COLUMNS)
    assert (said.starting, said.ending) == ("earliest", "latest")
    assert said.parallelism == os.cpu_count()
    assert said.fail_on_data_loss


def test_names_are_taken_in_any_case() -> None:
    said = options({"MAXROWSPERTRIGGER": "10", "retryfor": "5", "Parallelism": "3"})
    assert said.connection is not None
    assert (said.max_rows, said.connection.retry_for_s, said.parallelism) == (10, 5.0, 3)


def test_options_travel_to_workers() -> None:
    said = options(
        {"filter": "a/#", "user": "sam", "password": "x", "startingOffsets": "2026-01-31T12:00:00Z"}
    )
    assert pickle.loads(pickle.dumps(said)) == said


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("a/#", ("a/#",)),
        ("a/#, b/+/c", ("a/#", "b/+/c")),
        ('["a,b", "$SYS/#"]', ("a,b", "$SYS/#")),
    ],
)
def test_filters_have_commas_between_them_or_are_a_json_list(text: str, filters: tuple[str, ...]) -> None:
    assert options({"filter": text}).filters == filters


@pytest.mark.parametrize("text", ["", " , ", "a/#/b", "$share/g/a", "[1]", "[a", '[""]'])
def test_filters_that_are_none_are_refused(text: str) -> None:
    assert refusal({"filter": text}).startswith("filter: ")


def test_columns_keep_the_order_they_are_given_in() -> None:
    assert options({"columns": "payload, topic"}).columns == ("payload", "topic")


@pytest.mark.parametrize("text", ["", "topic,topic", "value"])
def test_columns_that_are_none_are_refused(text: str) -> None:
    assert refusal({"columns": text}).startswith("columns: ")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Latest", "latest"),
        (CURSOR, CURSOR),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T13:00:00+01:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_places_are_words_cursors_and_times(text: str, place: object) -> None:
    assert options({"startingOffsets": text}).starting == place


@pytest.mark.parametrize("text", ["", "first", "2026-01-31T12:00:00", "2026-13-31", CURSOR[:-2]])
def test_places_that_are_none_are_refused(text: str) -> None:
    assert refusal({"endingOffsets": text}).startswith("endingOffsets: ")


@pytest.mark.parametrize("text", ["yesterday", "2026-13-31", CURSOR[:-2]])
def test_a_place_that_is_none_is_told_what_to_write(text: str) -> None:
    told = "a cursor, or a time with its zone such as 2026-01-31T12:00:00Z, not "
    assert refusal({"startingOffsets": text}) == f"startingOffsets: write earliest, latest, {told}{text!r}"
    assert refusal({"endingOffsets": text}) == f"endingOffsets: write latest, {told}{text!r}"


def test_a_time_without_its_zone_is_told_what_it_lacks() -> None:
    assert "needs its time zone" in refusal({"startingOffsets": "2026-01-31T12:00:00"})


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("64m", 64 << 20), ("1 GiB", 1 << 30), ("8kb", 8192)]
)
def test_sizes_may_have_units(text: str, size: int) -> None:
    assert options({"maxBytesPerTrigger": text}).max_bytes == size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxRowsPerTrigger", "0"),
        ("maxRowsPerTrigger", "-1"),
        ("maxRowsPerTrigger", "1e3"),
        ("maxBytesPerTrigger", "many"),
        ("maxBytesPerTrigger", "0"),
        ("parallelism", "two"),
        ("failOnDataLoss", "maybe"),
        ("timeout", "0"),
        ("retryFor", "-1"),
        ("retryFor", "nan"),
        ("address", "ftp://here"),
        ("caFile", "/no/such/file"),
        ("hold", ""),
        ("lake", ""),
    ],
)
def test_values_out_of_range_are_refused_by_the_name_of_the_option(name: str, text: str) -> None:
    assert refusal({name: text}).startswith(f"{name}: ")


def test_a_misspelt_option_is_told_how_it_is_written() -> None:
    text = refusal({"startingOffset": "latest"})
    assert "did you mean startingOffsets?" in text
    assert "maxRowsPerTrigger" in text


def test_an_unknown_option_is_told_all_that_there_are() -> None:
    assert refusal({"zzz": "1"}).startswith("there is no option zzz: The options are address, ")


def test_a_path_is_told_that_topics_are_chosen_by_filter() -> None:
    assert "filter" in refusal({"path": "a/b"})


@pytest.mark.parametrize("name", ["maxRowsPerTrigger", "maxBytesPerTrigger", "hold", "holdLapse"])
def test_options_of_streams_are_refused_where_there_is_none(name: str) -> None:
    assert refusal({name: "1", "hold": "mine"}, is_stream=False).endswith(
        "this is a read that ends by itself"
    )


def test_losses_are_accepted_only_where_they_are_written_down() -> None:
    assert "missing" in refusal({"failOnDataLoss": "false"})
    assert not options({"failOnDataLoss": "false", "missing": "/tmp/missing"}).fail_on_data_loss


def test_the_side_table_is_a_directory_that_all_machines_see() -> None:
    assert options({"missing": "file:///data/missing"}).missing == "/data/missing"
    assert refusal({"missing": "s3://bucket/missing"}).startswith("missing: ")


def test_without_an_address_there_has_to_be_a_lake() -> None:
    assert "lake" in refusal({"address": ""})
    assert options({"address": "", "lake": "/data/lake"}).connection is None
    assert "hold" in refusal({"address": "", "lake": "/data/lake", "hold": "mine"})


def test_nothing_ends_at_the_beginning() -> None:
    assert "endingOffsets" in refusal({"endingOffsets": "earliest"})


def test_a_lapse_needs_something_that_lapses() -> None:
    assert "hold" in refusal({"holdLapse": "60"})


def test_every_option_and_column_is_in_the_reference() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "reference", "spark.md").read_text(encoding="utf-8")
    assert [name for name in (*READ_NAMES, *LOG_COLUMNS) if f"`{name}`" not in page] == []


MESSAGES = StructType([StructField("topic", StringType()), StructField("payload", StringType())])


def test_names_of_options_are_taken_in_any_case() -> None:
    options = write_options(
        {"ADDRESS": "https://host:8443", "retryfor": "0", "Timeout": "2.5", "topic": "a", "user": "ann"}
    )
    connection = options.connection
    assert (connection.address, connection.user, connection.password) == ("https://host:8443", "ann", None)
    assert (connection.retry_for_s, connection.timeout_s, options.topic) == (0.0, 2.5, "a")


def test_what_is_not_said_is_as_for_readers() -> None:
    options = write_options({"checkpointLocation": "/somewhere"})
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
        ({"address": "ftp://host"}, "^address: .* is not a valid address"),
        ({"timeout": "0"}, "^timeout: "),
        ({"timeout": "nan"}, "^timeout: "),
        ({"retryFor": "soon"}, "^retryFor: 'soon' is not a number of seconds"),
        ({"retryFor": "-1"}, "^retryFor: "),
        ({"key": ""}, "^key: "),
        ({"key": " a"}, "^key: "),
        ({"key": "k" * 201}, "^key: "),
        ({"key": "ä"}, "^key: "),
        ({"caFile": "/no/such/file"}, "^caFile: /no/such/file: No such file"),
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
    with pytest.raises(InvalidOption, match=r"^key: "):
        stream_writer({"key": "mine"}, MESSAGES)


def test_each_write_has_a_key_of_its_own_unless_it_is_given_one() -> None:
    keys = {batch_writer({}, MESSAGES, overwrite=False)._key for _ in range(2)}
    assert len(keys) == 2
    assert batch_writer({"key": "night 17"}, MESSAGES, overwrite=False)._key == "night 17"
