"""Which of two places comes first, where offsets were given a second time."""

import pytest

from penstock.doors.web.reading.positions import LogPosition

KEPT = 60
"""Where the log was cut back to, by a crash or by a restore."""
LOST = LogPosition(KEPT, 210, epoch=3)
"""A cursor from beyond that."""


@pytest.mark.parametrize(
    ("place", "is_before"),
    [
        (LogPosition(KEPT, KEPT, epoch=9), False),
        (LogPosition(190, 190, epoch=9), False),
        (LogPosition(300, 300, epoch=9), False),
        (LogPosition(59, 59, epoch=9), True),
        (LogPosition(KEPT, 209, epoch=3), True),
        (LogPosition(KEPT, 210, epoch=3), False),
        (LogPosition(40, 40, epoch=2), True),
    ],
)
def test_a_later_epoch_goes_on_where_the_earlier_one_was_cut(place: LogPosition, is_before: bool) -> None:
    assert place.is_before(LOST) is is_before


def test_what_was_lost_is_told() -> None:
    [gap] = LOST.lost
    assert (gap.first, gap.last, gap.reason) == (KEPT + 1, 210, "lost-uncommitted")
