"""The program's own log: one line per event, whatever happens."""

import logging

import msgspec
import pytest
import structlog

from penstock.app.logging import configure_logging


def divide() -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        structlog.get_logger().exception("went wrong")


def test_text_is_time_level_event_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "text")
    structlog.get_logger().info("listening", door="mqtt", port=1883)
    time, rest = capsys.readouterr().err.split(" ", 1)
    assert time.endswith("Z") and time[10] == "T"
    assert rest == "info    listening door=mqtt port=1883\n"


def test_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    structlog.get_logger().warning("slow", client="a\nb", kind=ValueError)
    (line,) = capsys.readouterr().err.splitlines()
    event = msgspec.json.decode(line)
    assert event.pop("time").endswith("Z")
    assert event == {"level": "warning", "event": "slow", "client": "a\nb", "kind": "<class 'ValueError'>"}


def test_events_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("warning", "text")
    log = structlog.get_logger()
    log.info("quiet")
    logging.getLogger("asyncio").info("quiet too")
    assert capsys.readouterr().err == ""
    log.warning("loud")
    assert "loud" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["a\nb", "a\r\x1b[2J", "a b=c", "\u2028x", ""])
def test_a_value_cannot_start_a_line_or_a_key_of_its_own(
    capsys: pytest.CaptureFixture[str], value: str
) -> None:
    configure_logging("info", "text")
    structlog.get_logger().info("connected", client=value)
    line = capsys.readouterr().err
    assert line.endswith(f"client={value!r}\n")
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("format", ["text", "json"])
def test_an_exception_is_one_line(capsys: pytest.CaptureFixture[str], format: str) -> None:
    configure_logging("info", format)
    divide()
    (line,) = capsys.readouterr().err.splitlines()
    assert "ZeroDivisionError: division by zero" in line
    assert "test_logging.py:" in line
    assert "Traceback" not in line


def test_a_traceback_is_added_for_debugging(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug", "json")
    divide()
    event = msgspec.json.decode(capsys.readouterr().err)
    assert event["traceback"].startswith("Traceback (most recent call last):\n")
    assert event["error"] == "ZeroDivisionError: division by zero"


def test_an_exception_may_be_handed_over(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "text")
    structlog.get_logger().error("closed", exc_info=ValueError("two\nlines"))
    assert capsys.readouterr().err.endswith("error   closed error='ValueError: two lines'\n")


def test_what_the_standard_library_logs_takes_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    logging.getLogger("asyncio").warning("took %s s", 3)
    event = msgspec.json.decode(capsys.readouterr().err)
    assert (event["level"], event["event"], event["logger"]) == ("warning", "took 3 s", "asyncio")


def test_an_exception_of_the_standard_library_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "text")
    try:
        raise ValueError("bad")
    except ValueError:
        logging.getLogger("asyncio").exception("in a callback")
    (line,) = capsys.readouterr().err.splitlines()
    assert "error='ValueError: bad'" in line
