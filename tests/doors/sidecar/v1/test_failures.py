"""What cannot be stored, and what nobody had thought of: one answer, one line, and the rest goes on."""

from asyncio import get_running_loop
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from penstock.core.diagnostics.why import explain
from penstock.core.settings import LogSettings
from penstock.doors.sidecar.v1 import why
from penstock.errors import StorageUnavailable
from tests.doors.sidecar.v1.conftest import Build
from tests.doors.sidecar.v1.people import Caller, House, entry

INTERNAL = (grpc.StatusCode.INTERNAL, "internal: this went wrong on our side")


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("nobody had thought of this")


@pytest.mark.parametrize("failure", [StorageUnavailable("the disk is full"), OSError("the disk is full")])
async def test_what_cannot_be_stored_is_refused_and_what_need_not_be_is_not(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    house = await build(data_dir=str(tmp_path / "data"), log=LogSettings(capture=("kept/#",)))
    publisher, loop = house.caller().publish(), get_running_loop()
    kept_by_id = entry("kept/b", b"5", message_ids=["m"])
    with monkeypatch.context() as patch:
        patch.setattr(
            house.broker.log,
            "when_committed",
            lambda _, settled: loop.call_soon(settled, failure),
            raising=True,
        )
        ack = await publisher.send(
            entry("kept/a", b"1", b"2"),
            entry("b", b"3", ttl_ms=-1),
            entry("c", b"4"),
            kept_by_id,
            entry("d", b"6", retain=True),
        )
    assert [(place.index, place.sequence) for place in ack.placed] == [(2, 1)]
    assert ack.accepted == 1
    assert ack.cursor
    assert [(refusal.index, refusal.code) for refusal in ack.refusals] == [
        (0, "storage-unavailable"),
        (1, "invalid-request"),
        (3, "storage-unavailable"),
        (4, "storage-unavailable"),
    ]
    assert house.broker.counters.publishes_refused == 4


async def test_mistake_of_ours_ends_the_call_that_met_it_with_one_line(
    house: House, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(house.broker.access, "may_publish", broken)
        publisher = caller.publish()
        await publisher.write(entry("a", b"1"))
        assert await publisher.ending() == INTERNAL
    assert [line["event"] for line in lines] == ["call not carried out"]
    await caller.publish_once("a", b"2")


async def test_question_that_breaks_something_ends_with_one_line(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(why, "explain", broken)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.why(topic="a", sequence=1)
    assert (caught.value.code(), caught.value.details()) == INTERNAL
    assert [line["event"] for line in lines] == ["call not carried out"]
    assert vars(why)["explain"] is explain


async def test_bad_input_is_worth_one_line_each(house: House, caller: Caller) -> None:
    listener = await caller.listen("a")
    with capture_logs() as lines:
        await listener.add("a/#/b")
        await listener.hear("refused")
        await caller.publish_once("", b"1", b"2", b"3")
    told = [(line["event"], line["method"], line["code"]) for line in lines]
    assert told == [("refused", "Subscribe", "invalid-filter"), ("refused", "Publish", "invalid-topic")]
    assert all("exc_info" not in line for line in lines)
