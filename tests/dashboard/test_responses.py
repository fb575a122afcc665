"""Responses of the HTTP API: metrics of this server and of older ones."""

from penstock.dashboard.responses import Outboxes, decode_metrics
from tests.dashboard.samples import topic


def test_an_older_server_that_reports_less_is_shown_too() -> None:
    told = decode_metrics(
        {"uptime_seconds": 1, "global": {"active_topics": 2}, "topics": {}, "unheard_of": 1}
    )
    assert told.total.active_topics == 2
    assert (told.outboxes.messages, told.log.epoch) == (0, 0)


def test_saturation_is_reported_by_the_server_or_derived_from_messages() -> None:
    assert topic(queue_depth=50, queue_max_size=200).saturation == 0.25
    assert topic(queue_depth=50, queue_max_size=200, queue_saturation=1.0).saturation == 1.0
    assert topic().saturation == 0
    assert Outboxes(largest_messages=5, limit_messages=10).saturation == 0.5
