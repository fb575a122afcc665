"""Batches that are published in steps: outcomes of their entries when the commit of a part fails."""

import pytest

from penstock.core.settings import CoreSettings, LogSettings
from penstock.doors.sidecar.v1.batches import RUNS_A_STEP, Batch
from penstock.wire.sidecar.batches import read_batch
from penstock.wire.sidecar.messages.penstock import PublishAck, PublishBatch
from tests.doors.sidecar.v1.people import entry
from tests.support.broker import Stage
from tests.support.disk import RETRY_S, Disk
from tests.support.steps import take_all

PARTS = 3


@pytest.mark.parametrize("has_recovered", [True, False])
def test_part_whose_commit_failed_is_refused_whatever_the_disk_did_until_the_end(has_recovered: bool) -> None:
    disk = Disk()
    stage = Stage(CoreSettings(log=LogSettings(capture=("kept/#",))), disk=disk)
    sender = stage.client("publisher").session
    count = PARTS * RUNS_A_STEP
    message = PublishBatch(messages=[entry(f"kept/{number}", b"1") for number in range(count)])
    _, entries = take_all(read_batch(message.SerializeToString(), count))
    batch = Batch(stage.broker, sender, 1, 1)
    parts = batch.publish(entries)
    next(parts)
    disk.is_full = True
    stage.settle()
    next(parts)  # refused at once: the log has failed
    if has_recovered:
        disk.is_full = False
        stage.advance(RETRY_S)
        stage.settle()
    take_all(parts)
    stage.settle()
    assert batch.has_failed
    ack = PublishAck.FromString(take_all(batch.acknowledgement()))
    assert {refusal.index for refusal in ack.refusals} >= set(range(2 * RUNS_A_STEP))
    assert {refusal.code for refusal in ack.refusals} == {"storage-unavailable"}
    assert {place.index for place in ack.placed} & set(range(2 * RUNS_A_STEP)) == set()
