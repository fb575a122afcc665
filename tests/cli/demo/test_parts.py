"""What the demonstration is made of."""

from itertools import islice
from pathlib import Path

import pytest
from msgspec import json

from penstock.cli.demo import server
from penstock.cli.demo.plant import HOT_C, MACHINES
from penstock.cli.demo.resume import doubles_of, missing_of
from penstock.cli.demo.screen import NotAsPromised, Screen
from penstock.config import load
from penstock.errors import InvalidConfig


def test_readings_are_the_same_in_every_run() -> None:
    once, again = (list(islice(MACHINES[0].readings(), 20)) for _ in range(2))
    assert once == again
    assert [topic for topic, _ in once[0]] == ["plant/pump-1/pressure", "plant/pump-1/flow"]
    assert set(json.decode(once[0][0][1])) == {"value", "unit"}


def test_an_oven_gets_hot_soon() -> None:
    oven = MACHINES[-1]
    values = [json.decode(payload)["value"] for [(_, payload)] in islice(oven.readings(), 30)]
    assert max(values) > HOT_C > min(values)


def test_holes_and_doubles_are_found() -> None:
    whole = [("a", 1), ("b", 1), ("a", 2)]
    assert (missing_of(whole), doubles_of(whole)) == (0, 0)
    assert missing_of([("a", 1), ("a", 4), ("b", 2)]) == 3
    assert doubles_of([*whole, ("a", 2), ("a", 2), ("b", 1)]) == 3


def test_what_is_not_as_promised_ends_the_demonstration(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.check(True, "all is well")
    with pytest.raises(NotAsPromised, match="should be so, and is not: nothing is lost"):
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


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "settings_in", lambda folder: {"host": "no such host"})
    with pytest.raises(InvalidConfig, match=r"does not start: .*no such host"), server.serving(tmp_path):
        pass
