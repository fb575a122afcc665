"""Lines that strangers cause: each is worth one, and no number of them a full disk."""

import structlog
from structlog.testing import capture_logs

from penstock.net.log_throttle import LINES_PER_SECOND, ThrottledLog
from tests.support.clock import ManualClock


def test_lines_that_were_left_out_are_told_by_the_next() -> None:
    clock = ManualClock()
    throttled = ThrottledLog(structlog.get_logger("test"), clock.monotonic)
    with capture_logs() as lines:
        for number in range(LINES_PER_SECOND + 5):
            throttled.write("failed", number=number)
        assert [line["number"] for line in lines] == list(range(LINES_PER_SECOND))
        clock.advance(1)
        throttled.write("failed", number=100)
        throttled.write("failed", number=101)
    *first, last, after = lines
    assert (last["number"], last["left_out"]) == (100, 5)
    assert all("left_out" not in line for line in [*first, after])


def test_mistakes_of_ours_count_as_well_and_are_told_whole() -> None:
    throttled = ThrottledLog(structlog.get_logger("test"), ManualClock().monotonic, 2)
    with capture_logs() as lines:
        for _ in range(5):
            try:
                raise ValueError
            except ValueError:
                throttled.write_failure("failed")
    assert [(line["log_level"], line["exc_info"]) for line in lines] == [("error", True)] * 2


def test_what_is_empty_is_left_out() -> None:
    with capture_logs() as lines:
        ThrottledLog(structlog.get_logger("test"), ManualClock().monotonic).write(
            "failed", client="", count=0
        )
    assert lines == [{"event": "failed", "log_level": "info", "count": 0}]


def test_a_place_may_have_a_limit_of_its_own() -> None:
    throttled = ThrottledLog(structlog.get_logger("test"), ManualClock().monotonic, 2)
    with capture_logs() as lines:
        for _ in range(5):
            throttled.write("failed")
    assert len(lines) == 2
