"""A server in a test's process leaves that process as it was."""

import gc
from collections.abc import Iterator

import pytest
import structlog

from penstock.testing import server


@pytest.fixture
def usual_collection() -> Iterator[None]:
    """Python's own thresholds, whatever servers the tests before have started in this process."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_nothing_is_printed_and_everything_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with server() as one, server() as other:
        structlog.get_logger("mine").warning("of the program under test")
    listening = [event for event in one.events if event["event"] == "listening"]
    assert [event["door"] for event in listening] == ["mqtt", "http", "sidecar"]
    assert {event["level"] for event in listening} == {"info"}
    assert str(other.mqtt_port) not in str(list(one.events))
    printed = capsys.readouterr()
    assert "of the program under test" in printed.out
    assert "listening" not in printed.out + printed.err


@pytest.mark.usefixtures("usual_collection")
def test_the_process_is_afterwards_as_it_was_before() -> None:
    before = gc.get_threshold(), structlog.get_config()["processors"]
    with server():
        with server():
            assert gc.get_threshold() != before[0]
        assert gc.get_threshold() != before[0]
    assert (gc.get_threshold(), structlog.get_config()["processors"]) == before


def test_a_log_that_a_test_configures_meanwhile_stays() -> None:
    before = structlog.get_config()
    try:
        with server():
            structlog.configure(processors=[structlog.processors.JSONRenderer()])
            mine = structlog.get_config()["processors"]
        assert structlog.get_config()["processors"] is mine
    finally:
        structlog.configure(**before)
