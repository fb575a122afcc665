"""Sealing process: its results, damaged frames, and how it ends."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.runs import Run
from penstock.storage.disk.pieces.arrow_columns import decode_batch, to_runs
from penstock.storage.disk.pieces.frames import Extent, Frame, decode_extents, encode_frame
from penstock.storage.disk.pieces.sealing_process import (
    MODULE,
    Part,
    SealingFailed,
    SealingProcess,
    SealRequest,
    seal,
    serve,
)
from penstock.storage.disk.rocksdb.layout import pack_place, sequence_key
from tests.support.samples import make_run
from tests.support.waiting import until_sync


def part_of(first: int, *runs: Run, last: int | None = None, epoch: int = 1) -> Part:
    last = first if last is None else last
    return Part(first, last, encode_frame(Frame(epoch, first, last, 1_000 + first, runs)))


def parts_of(*topics: str) -> list[Part]:
    """A frame of one message for each topic."""
    return [
        part_of(offset, make_run(topic, b"payload", sequence=offset, offset=offset))
        for offset, topic in enumerate(topics, 1)
    ]


@pytest.fixture
def process() -> Iterator[SealingProcess]:
    process = SealingProcess()
    yield process
    process.close()


def state_of(pid: int) -> str:
    """The letter for what a process does: R, S, T, Z; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def test_frames_become_one_batch_with_all_that_is_stored_beside_it() -> None:
    runs = [
        make_run("a", b"1", b"2", qos=1, sequence=3, offset=10),
        make_run("b", b"3", sequence=1, offset=12),
        make_run("a", b"4", sequence=5, offset=14),
    ]
    sealed = seal(SealRequest("node", [part_of(10, *runs[:2], last=13), part_of(14, runs[2])]))
    assert [run.payload() for run in to_runs(decode_batch(sealed.stream))] == [b"1", b"2", b"3", b"4"]
    assert sealed.summary is not None
    assert (sealed.summary.first, sealed.summary.last, sealed.summary.count) == (10, 14, 4)
    assert sealed.summary.bytes == len(sealed.stream)
    assert decode_extents(sealed.topics) == {"a": Extent(3, 5, 3, 1), "b": Extent(1, 1, 1, 0)}
    assert dict(sealed.places) == {
        sequence_key("a", 3): pack_place(10, 5),
        sequence_key("b", 1): pack_place(10, 1),
    }
    assert (sealed.used, sealed.damage) == (2, "")


def test_frames_without_messages_need_no_stream() -> None:
    sealed = seal(SealRequest("node", [part_of(10, last=13), part_of(14, last=20)]))
    assert sealed.summary is not None
    assert (sealed.summary.first, sealed.summary.last, sealed.summary.count) == (10, 20, 0)
    assert (sealed.stream, sealed.summary.bytes, sealed.places) == (b"", 0, [])


damages = {
    "no frame at all": lambda part: b"\xc1" * 20,
    "cut": lambda part: part.data[:-1],
    "another frame": lambda part: encode_frame(Frame(1, 7, 7, 1_000, [])),
    "a frame that ends elsewhere": lambda part: encode_frame(Frame(1, part.first, part.last + 1, 1_000, [])),
    "numbers that fit into no key": lambda part: encode_frame(
        Frame(1, part.first, part.last, 1_000, [make_run("a", b"x", sequence=-1)])
    ),
    "numbers that fit into no column": lambda part: encode_frame(
        Frame(1, part.first, part.last, 1_000, [make_run("a", b"x", sequence=2**64 - 1)])
    ),
}


@pytest.mark.parametrize("damage", damages.values(), ids=damages.keys())
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_batch_ends_before_a_damaged_frame(damage: Callable[[Part], bytes], place: int) -> None:
    parts = parts_of("a", "b", "c")
    parts[place] = Part(parts[place].first, parts[place].last, damage(parts[place]))
    sealed = seal(SealRequest("node", parts))
    assert sealed.used == place
    assert sealed.damage
    if place:
        assert sealed.summary is not None
        assert sealed.summary.last == parts[place - 1].last
        assert len(to_runs(decode_batch(sealed.stream))) == place
    else:
        assert (sealed.summary, sealed.stream) == (None, b"")


@pytest.mark.parametrize("requests", [b"", b"\0\0", b"\0\0\0\0\0\0\0\x09cut"])
def test_serving_ends_with_the_orders_even_inside_one(requests: bytes) -> None:
    answers = io.BytesIO()
    serve(io.BytesIO(requests), answers)
    assert answers.getvalue() == b""


def test_the_process_gives_what_would_be_made_here(process: SealingProcess) -> None:
    requests = [SealRequest("node", parts_of("a", "b")), SealRequest("node", [part_of(3, last=9)])]
    requests.append(SealRequest("node", [*parts_of("a" * 60_000), Part(2, 2, b"?")]))
    assert [process.seal(request) for request in requests] == [seal(request) for request in requests]


def test_one_process_handles_all_requests(process: SealingProcess) -> None:
    assert process.pid is None
    process.seal(SealRequest("node", parts_of("a")))
    pid = process.pid
    process.seal(SealRequest("node", parts_of("b")))
    assert process.pid == pid is not None


def test_a_request_larger_than_any_pipe_is_handled(process: SealingProcess) -> None:
    run = make_run("a", os.urandom(6_000_000), sequence=1, offset=1)
    (back,) = to_runs(decode_batch(process.seal(SealRequest("node", [part_of(1, run)])).stream))
    assert back.payload() == run.payload()


def test_a_killed_process_is_reported_and_replaced(process: SealingProcess) -> None:
    request = SealRequest("node", parts_of("a"))
    process.seal(request)
    killed = process.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(SealingFailed, match="ended with -9: no output"):
        process.seal(request)
    assert process.seal(request) == seal(request)
    assert process.pid != killed
    assert state_of(killed) == ""


def test_a_process_that_does_not_respond_is_killed() -> None:
    process = SealingProcess()
    request = SealRequest("node", [part_of(1, make_run("a", bytes(4_000_000), offset=1))])
    process.seal(SealRequest("node", parts_of("a")))
    process.timeout_s = 0.2
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(SealingFailed, match="ended with -9"):
        process.seal(request)
    assert process.pid is None


def test_what_the_process_says_goes_into_the_error_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], process: SealingProcess
) -> None:
    monkeypatch.setattr(
        "penstock.storage.disk.pieces.sealing_process.MODULE", "penstock.storage.disk.not_there"
    )
    with pytest.raises(
        SealingFailed, match=r"ended with 1: .*No module named penstock\.storage\.disk\.not_there"
    ):
        process.seal(SealRequest("node", parts_of("a")))
    assert capfd.readouterr() == ("", "")


def test_a_process_that_cannot_be_started_is_reported(
    monkeypatch: pytest.MonkeyPatch, process: SealingProcess
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SealingFailed, match="cannot be started"):
        process.seal(SealRequest("node", parts_of("a")))


def test_closing_ends_the_process(process: SealingProcess) -> None:
    process.seal(SealRequest("node", parts_of("a")))
    pid = process.pid
    assert pid is not None
    process.close()
    assert (process.pid, state_of(pid)) == (None, "")


def test_a_process_that_was_never_needed_can_be_closed(process: SealingProcess) -> None:
    process.kill()
    process.close()


def test_the_process_gives_way_to_others_and_never_meets_the_server(process: SealingProcess) -> None:
    process.seal(SealRequest("node", parts_of("a")))
    assert process.pid is not None
    expected = min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)  # the lowest that there is
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == expected
    script = f"import sys, {MODULE}, penstock.storage.disk.pieces.arrow_columns; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    rooms = {name.split(".")[1] for name in loaded.split() if name.startswith("penstock.")}
    assert rooms == {"storage", "common", "runs", "model", "errors"}
    assert "rocksdict" not in loaded.split()


def test_the_servers_side_does_without_arrow() -> None:
    script = f"import sys, {MODULE}; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_for_the_server_do_not_end_the_process(
    number: signal.Signals, process: SealingProcess
) -> None:
    request = SealRequest("node", parts_of("a"))
    process.seal(request)
    assert process.pid is not None
    os.kill(process.pid, number)
    assert process.seal(request) == seal(request)


def test_the_process_ends_with_the_one_that_started_it() -> None:
    script = (
        "import time\n"
        f"from {MODULE} import SealRequest, SealingProcess\n"
        "process = SealingProcess()\n"
        "process.seal(SealRequest('node', []))\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        server.kill()
    until_sync(lambda: state_of(pid) in {"", "Z"}, "the process is still running")
