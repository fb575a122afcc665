"""What a client says that it has seen: only what it asked for counts, and only so much of it is kept."""

import pytest

from penstock.core.durability.records import PausedRecord
from penstock.core.settings import CoreSettings, LogSettings
from penstock.doors.sidecar.nexusd import client_progress
from penstock.doors.sidecar.nexusd.client_progress import ReportedSequences, stale_of
from tests.support.broker import Stage
from tests.support.disk import Disk

EARLIER = 1


@pytest.fixture
def stage() -> Stage:
    """A server in its second epoch, which never had a message."""
    disk = Disk()
    Stage(disk=disk)
    disk.crash()
    return Stage(disk=disk)


def record_of(
    *filters: str, epoch: int = EARLIER, stale: dict[str, tuple[int, int]] | None = None
) -> PausedRecord:
    return PausedRecord(None, "c", filters, 60.0, 0, epoch, stale=stale)


def test_sequences_that_were_never_stored_are_noted_of_what_was_asked_for(stage: Stage) -> None:
    told = {"a": 3, "b/1": 2, "c": 9, "b/2": 0}
    assert stale_of(stage.broker, record_of("a", "b/+"), told) == {"a": (3, EARLIER), "b/1": (2, EARLIER)}


def test_only_so_many_are_kept_and_beyond_that_none_says_anything(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_progress, "MOST_STALE", 2)
    record = record_of("#")
    assert stale_of(stage.broker, record, {"a": 3, "b": 2}) == {"a": (3, EARLIER), "b": (2, EARLIER)}
    assert stale_of(stage.broker, record, {"a": 3, "b": 2, "c": 1}) is None
    now = record_of("#", epoch=stage.broker.log.epoch, stale=None)
    assert ReportedSequences(stage.broker, now, {"c": 1})["c"] == 0


def test_within_an_epoch_they_stay_what_they_were(stage: Stage) -> None:
    record = record_of("a", epoch=stage.broker.log.epoch, stale={"a": (3, EARLIER)})
    assert stale_of(stage.broker, record, {"a": 5}) == {"a": (3, EARLIER)}


def test_a_message_of_a_topic_that_was_not_asked_for_is_nothing(stage: Stage) -> None:
    record = record_of("a", "b/+")
    assert not ReportedSequences(stage.broker, record, {"c": 3, "a": 0}).is_something
    assert ReportedSequences(stage.broker, record, {"c": 3, "b/1": 1}).is_something


def test_what_is_named_as_before_stays_of_its_epoch_whatever_comes_between(stage: Stage) -> None:
    later = record_of("#", epoch=stage.broker.log.epoch - 1, stale={"a": (3, 0), "b": (2, 0)})
    told = {"a": 3, "b": 4, "c": 1}
    assert ReportedSequences(stage.broker, later, told).older == {"a": 0}
    assert stale_of(stage.broker, later, told) == {"a": (3, 0), "b": (4, EARLIER), "c": (1, EARLIER)}


def test_after_two_starts_everything_that_is_named_may_mean_something_else() -> None:
    disk, settings = Disk(), CoreSettings(log=LogSettings(capture=("#",)))
    for _ in range(3):
        stage = Stage(settings, disk=disk)
        stage.client("s").publish("a", b"x", qos=1)
        stage.settle()
        disk.crash()
    stage = Stage(settings, disk=disk)
    assert stage.broker.log.epoch == 4
    assert stale_of(stage.broker, record_of("a", epoch=2), {"a": 1}) == {"a": (1, 2)}
    assert stale_of(stage.broker, record_of("a", epoch=3), {"a": 1}) == {}
