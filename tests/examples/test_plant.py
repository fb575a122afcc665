"""Parts of the example `examples/plant`."""

from itertools import islice
from pathlib import Path

import pytest
from msgspec import json

from examples.plant import server
from examples.plant.machines import HOT_C, MACHINES
from examples.plant.resume import count_duplicates, count_missing
from examples.plant.screen import CheckFailed, PlantError, Screen
from penstock.config import load


def test_readings_are_the_same_in_every_run() -> None:
    once, again = (list(islice(MACHINES[0].readings(), 20)) for _ in range(2))
    assert once == again
    assert [topic for topic, _ in once[0]] == ["plant/pump-1/pressure", "plant/pump-1/flow"]
    assert set(json.decode(once[0][0][1])) == {"value", "unit"}


def test_an_oven_gets_hot_soon() -> None:
    oven = MACHINES[-1]
    values = [json.decode(payload)["value"] for [(_, payload)] in islice(oven.readings(), 30)]
    assert max(values) > HOT_C > min(values)


def test_gaps_and_duplicates_are_counted() -> None:
    whole = [("a", 1), ("b", 1), ("a", 2)]
    assert (count_missing(whole), count_duplicates(whole)) == (0, 0)
    assert count_missing([("a", 1), ("a", 4), ("b", 2)]) == 3
    assert count_duplicates([*whole, ("a", 2), ("a", 2), ("b", 1)]) == 3


def test_failed_check_ends_the_tour(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.check(True, "all is well")
    with pytest.raises(CheckFailed, match="check failed: nothing is lost"):
        screen.check(False, "nothing is lost")
    assert capsys.readouterr().out == "  ok  all is well\n"


def test_tables_are_plain_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.chapter("One")
    screen.table(("door", "messages"), [("MQTT", 1200), ("gRPC", 7)])
    screen.chapter("Two")
    assert capsys.readouterr().out == (
        "\n1. One\n\n    door   messages\n    MQTT      1,200\n    gRPC          7\n\n2. Two\n"
    )


def test_the_settings_of_its_server_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_bytes(json.encode(server.settings_in(tmp_path)))
    assert load(file).settings.outbox.messages == server.OUTBOX_MESSAGES


def test_server_that_does_not_start_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "settings_in", lambda folder: {"host": "no such host"})
    with pytest.raises(PlantError, match=r"did not start: .*no such host"), server.run_server(tmp_path):
        pass
