"""The child process that seals: what it makes, what it leaves out, and how it ends."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.model import Run
from penstock.storage.disk.columns import decode_batch, to_runs
from penstock.storage.disk.frames import Extent, Frame, decode_extents, encode_frame
from penstock.storage.disk.layout import pack_place, sequence_key
from penstock.storage.disk.worker import MODULE, Order, Part, Worker, WorkerFailed, seal, serve
from penstock.testing import make_run


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
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.005)


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
    sealed = seal(Order("node", [part_of(10, *runs[:2], last=13), part_of(14, runs[2])]))
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
    sealed = seal(Order("node", [part_of(10, last=13), part_of(14, last=20)]))
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
    sealed = seal(Order("node", parts))
    assert sealed.used == place
    assert sealed.damage
    if place:
        assert sealed.summary is not None
        assert sealed.summary.last == parts[place - 1].last
        assert len(to_runs(decode_batch(sealed.stream))) == place
    else:
        assert (sealed.summary, sealed.stream) == (None, b"")


@pytest.mark.parametrize("orders", [b"", b"\0\0", b"\0\0\0\0\0\0\0\x09cut"])
def test_serving_ends_with_the_orders_even_inside_one(orders: bytes) -> None:
    answers = io.BytesIO()
    serve(io.BytesIO(orders), answers)
    assert answers.getvalue() == b""


def test_the_process_gives_what_would_be_made_here(worker: Worker) -> None:
    orders = [Order("node", parts_of("a", "b")), Order("node", [part_of(3, last=9)])]
    orders.append(Order("node", [*parts_of("a" * 60_000), Part(2, 2, b"?")]))
    assert [worker.seal(order) for order in orders] == [seal(order) for order in orders]


def test_one_process_does_all_orders(worker: Worker) -> None:
    assert worker.pid is None
    worker.seal(Order("node", parts_of("a")))
    pid = worker.pid
    worker.seal(Order("node", parts_of("b")))
    assert worker.pid == pid is not None


def test_an_order_larger_than_any_pipe_is_done(worker: Worker) -> None:
    run = make_run("a", os.urandom(6_000_000), sequence=1, offset=1)
    (back,) = to_runs(decode_batch(worker.seal(Order("node", [part_of(1, run)])).stream))
    assert back.payload() == run.payload()


def test_a_killed_process_is_told_and_replaced(worker: Worker) -> None:
    order = Order("node", parts_of("a"))
    worker.seal(order)
    killed = worker.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(WorkerFailed, match="ended with -9: it said nothing"):
        worker.seal(order)
    assert worker.seal(order) == seal(order)
    assert worker.pid != killed
    assert state_of(killed) == ""


def test_a_process_that_does_not_answer_is_ended() -> None:
    worker = Worker()
    order = Order("node", [part_of(1, make_run("a", bytes(4_000_000), offset=1))])
    worker.seal(Order("node", parts_of("a")))
    worker.answer_timeout_s = 0.2
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerFailed, match="ended with -9"):
        worker.seal(order)
    assert worker.pid is None


def test_what_the_process_says_goes_into_the_error_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], worker: Worker
) -> None:
    monkeypatch.setattr("penstock.storage.disk.worker.MODULE", "penstock.storage.disk.not_there")
    with pytest.raises(
        WorkerFailed, match=r"ended with 1: .*No module named penstock\.storage\.disk\.not_there"
    ):
        worker.seal(Order("node", parts_of("a")))
    assert capfd.readouterr() == ("", "")


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(WorkerFailed, match="cannot be started"):
        worker.seal(Order("node", parts_of("a")))


def test_closing_ends_the_process(worker: Worker) -> None:
    worker.seal(Order("node", parts_of("a")))
    pid = worker.pid
    assert pid is not None
    worker.close()
    assert (worker.pid, state_of(pid)) == (None, "")


def test_a_worker_that_was_never_needed_can_be_closed(worker: Worker) -> None:
    worker.kill()
    worker.close()


def test_the_process_gives_way_to_others_and_never_meets_the_server(worker: Worker) -> None:
    worker.seal(Order("node", parts_of("a")))
    assert worker.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 10
    script = f"import sys, {MODULE}, penstock.storage.disk.columns; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    rooms = {name.split(".")[1] for name in loaded.split() if name.startswith("penstock.")}
    assert rooms == {"storage", "model"}
    assert "rocksdict" not in loaded.split()


def test_the_servers_side_does_without_arrow() -> None:
    script = f"import sys, {MODULE}; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_for_the_server_do_not_end_the_process(number: signal.Signals, worker: Worker) -> None:
    order = Order("node", parts_of("a"))
    worker.seal(order)
    assert worker.pid is not None
    os.kill(worker.pid, number)
    assert worker.seal(order) == seal(order)


def test_the_process_ends_with_the_one_that_started_it() -> None:
    script = (
        "import time\n"
        f"from {MODULE} import Order, Worker\n"
        "worker = Worker()\n"
        "worker.seal(Order('node', []))\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        server.kill()
    wait_until(lambda: state_of(pid) in {"", "Z"})
