"""`penstock demo` without Java installed: its numbers are right, and nothing is left behind."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.extras import how_to_get
from tests.cli.test_pipeline import WITHOUT_SPARK
from tests.examples.places import Place

RUN_S = 580
pytestmark = pytest.mark.timeout(600)

Rows = list[list[str]]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Output of a whole demonstration, which succeeded and left nothing."""
    place = Place(tmp_path_factory.mktemp("demo"))
    with place.start("--seconds", "2") as running:
        try:
            output, complaints = running.communicate(timeout=RUN_S)
        finally:
            running.kill()
    assert (running.returncode, complaints) == (0, ""), output + complaints
    assert (place.left_files, place.left_processes) == ([], [])
    return output


def chapter(printed: str, number: int) -> str:
    """One chapter of what was printed."""
    return re.split(r"^\d\. ", printed, flags=re.MULTILINE)[number]


def table(text: str, first_column: str) -> Rows:
    """The rows of a table that begins with this column: cells stand three spaces apart."""
    found = re.search(rf"^    {re.escape(first_column)} .*\n((?:    .*\n)+)", text, re.MULTILINE)
    assert found is not None, text
    return [re.split(r" {3,}", line.strip()) for line in found[1].splitlines()]


def count(text: str) -> int:
    return int(text.replace(",", ""))


def printed_count(text: str, pattern: str) -> int:
    """The number at the one place in a text that a pattern names."""
    [found] = re.findall(pattern, text)
    return count(found)


def test_the_demonstration_has_seven_chapters_and_ends_well(printed: str) -> None:
    assert re.findall(r"^(\d)\. ", printed, re.MULTILINE) == list("1234567")
    assert re.search(r"^  Done in \d+ s\.$", printed, re.MULTILINE)
    assert printed.count("\n  ok  ") == 12
    assert re.search(r"\x1b| $", printed, re.MULTILINE) is None


def test_every_door_took_messages_and_gave_some(printed: str) -> None:
    *doors, everything = table(chapter(printed, 2), "door and program")
    assert [row[0].partition(":")[0] for row in doors] == ["MQTT", "gRPC", "WebSocket", "HTTP long poll"]
    for column in (1, 2):
        assert all(count(row[column]) for row in doors)
        assert sum(count(row[column]) for row in doors) == count(everything[column])
    orders = printed_count(chapter(printed, 2), r"ok  ([\d,]+) work orders")
    shares = re.findall(r"(?:anna|boris|chen) (\d+)", chapter(printed, 2))
    assert sum(map(int, shares)) == orders == count(doors[3][1])


def test_reader_that_changed_doors_has_everything_that_was_published(printed: str) -> None:
    parts = table(chapter(printed, 3), "door")
    assert [row[0] for row in parts] == ["MQTT", "WebSocket", "gRPC", "HTTP"]
    published = count(table(chapter(printed, 2), "door and program")[-1][1])
    assert sum(count(row[1]) for row in parts) == published
    assert printed_count(chapter(printed, 3), r"served ([\d,]+), missing 0, complete: yes") == count(
        parts[-1][1]
    )
    assert len({row[2] for row in parts}) == 4


def test_what_the_slow_subscriber_lost_is_accounted_for_everywhere(printed: str) -> None:
    [[client, sequences, dropped, reason, _]] = table(chapter(printed, 4), "not delivered to")
    first, last = map(count, sequences.split(" to "))
    assert (client, reason, last - first + 1) == ("tablet", "outbox-full", count(dropped))
    assert printed_count(chapter(printed, 4), r"\d+ delivered \+ (\d+) accounted for = 400") == count(dropped)
    assert f"penstock why plant/press-2/force {last} --client tablet" in chapter(printed, 4)
    assert "too slow, and its outbox was full" in chapter(printed, 4)
    assert ["outbox-full", dropped] in table(chapter(printed, 5), "reason")


def test_spark_finds_what_was_published(printed: str) -> None:
    published = count(table(chapter(printed, 2), "door and program")[-1][1])
    since = printed_count(chapter(printed, 5), r"historian's cursor: ([\d,]+) newer messages")
    assert since == 400 + 1  # the burst, and the end of the shift
    lake = printed_count(chapter(printed, 5), r"now a lake: ([\d,]+) rows")
    assert lake >= published + since
    rows = dict(table(chapter(printed, 6), "audit"))
    assert count(rows.pop("rows in the lake")) == count(rows.pop("rows compared with the log")) == lake
    assert set(rows.values()) == {"0"}
    [busiest, *_] = table(chapter(printed, 5), "client")
    assert busiest[0] == "press-2"
    assert count(busiest[1]) > 400


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_demonstration_leaves_nothing(tmp_path: Path, number: signal.Signals, code: int) -> None:
    place = Place(tmp_path)
    with place.start() as running:
        assert running.stdout is not None
        try:
            next(line for line in running.stdout if line.startswith("2. "))
            assert len(place.left_processes) == 1  # the server
            running.send_signal(number)
            _, complaints = running.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.returncode, complaints) == (code, "stopped.\n")
    assert (place.left_files, place.left_processes) == ([], [])


def test_kept_folder_stays_and_is_not_reused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.start("--keep", "kept") as running:
        assert running.stdout is not None
        try:
            next(line for line in running.stdout if line.startswith("2. "))
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)
        finally:
            running.kill()
    assert place.left_files == ["kept"]
    assert {path.name for path in (place.here / "kept").iterdir()} >= {"data", "penstock.yaml", "server.log"}
    with place.start("--keep", "kept") as again:
        _, complaints = again.communicate(timeout=60)
    assert again.returncode == 1
    assert complaints == ("error: --keep kept: the folder is not empty; give an empty or a new one\n")


def test_without_spark_it_says_so_before_anything_starts(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WITHOUT_SPARK, "demo", "--keep", str(tmp_path / "kept")]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == f"error: penstock demo: needs the extra `spark`: {how_to_get('spark')}\n"
    assert not (tmp_path / "kept").exists()
