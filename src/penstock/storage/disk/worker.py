"""The child process that makes sealed batches out of frames, so that the server's loop does not wait for it.

    python -m penstock.storage.disk.worker

Orders come in through stdin and sealed batches go out through stdout, each behind its length. It gives way to
everything else that wants to run, and ends when its stdin does, so it never outlives the server. It knows
nothing of the database: what it is given and what it gives back are values. `Worker` is the server's side.
"""

import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from threading import Timer
from typing import IO

from msgspec import MsgspecError, Struct, msgpack

from penstock.storage.disk.frames import Frame, Summary, decode_frame, encode_extents
from penstock.storage.disk.layout import pack_place, sequence_key

MODULE = "penstock.storage.disk.worker"

_LENGTH = struct.Struct(">Q")
_PIPE_BYTES = 1 << 20  # large, because after each piece we have to ask for the interpreter again
_NICENESS = 10
_ANSWER_TIMEOUT_S = 60.0
_FAREWELL_S = 1.0
_LAST_WORDS = 2_000
_MISFITS = (ArithmeticError, ValueError, struct.error)


class Part(Struct, frozen=True, array_like=True):
    """One stored frame, and the offsets it is expected to cover."""

    first: int
    last: int
    data: bytes


class Order(Struct, frozen=True, array_like=True):
    """Frames to be sealed together; each begins where the one before it ends."""

    node_id: str
    parts: Sequence[Part]


class Sealed(Struct, frozen=True, array_like=True):
    """What was made of an order, ready to be stored."""

    used: int
    """How many of the parts are in the batch, from the first on. Fewer than ordered if one is damaged."""
    summary: Summary | None = None
    """None if not even the first could be used."""
    stream: bytes = b""
    """Empty if there are no messages."""
    topics: bytes = b""
    """The extents, encoded."""
    places: Sequence[tuple[bytes, bytes]] = ()
    """Keys and values for the sequences of each topic."""
    damage: str = ""
    """What is wrong with the first part that was not used."""


class WorkerFailed(Exception):
    """The child process ended, or did not answer; the text has its last words."""


_encoder = msgpack.Encoder()
_orders = msgpack.Decoder(Order)
_answers = msgpack.Decoder(Sealed)


class Worker:
    """The server's side of the child process. It is started when it is needed, and again after it died."""

    def __init__(self, answer_timeout_s: float = _ANSWER_TIMEOUT_S) -> None:
        self.answer_timeout_s = answer_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        process = self._process
        return None if process is None else process.pid

    def seal(self, order: Order) -> Sealed:
        """Have an order done; one thread at a time.

        Raises:
            WorkerFailed: it was not done. The next call starts a new process.
        """
        try:
            process = self._process = self._process or _start()
        except OSError as error:
            raise WorkerFailed(f"the worker cannot be started: {error}") from error
        watchdog = Timer(self.answer_timeout_s, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            _send(process.stdin, order)
            answer = _receive(process.stdout)
        except OSError:  # it died while we were writing
            answer = None
        finally:
            watchdog.cancel()
        if answer is None:
            raise WorkerFailed(self._bury())
        return _answers.decode(answer)

    def kill(self) -> None:
        """End it at once, from any thread; an order at hand fails."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End it; nothing may be at hand."""
        self.kill()
        self._bury()

    def _bury(self) -> str:
        """Let go of the process, and tell how it ended."""
        process, self._process = self._process, None
        if process is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            process.wait(_FAREWELL_S)  # its own exit code tells more than that it was killed
        process.kill()
        _, words = process.communicate()
        last_words = words[-_LAST_WORDS:].decode(errors="replace").strip()
        return f"the worker ended with {process.returncode}: {last_words or 'it said nothing'}"


def _start() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],  # -P: not whatever lies in the present folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError, AttributeError):  # refused, or not known to this system: then it is slower
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return process


def _send(pipe: IO[bytes], message: Struct) -> None:
    data = _encoder.encode(message)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """The next message; None if there is none any more."""
    length = pipe.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    data = pipe.read(size)
    return data if len(data) == size else None


def seal(order: Order) -> Sealed:
    """Make one batch of all frames before the first damaged one."""
    frames, damage = _decode(order.parts)
    try:
        return _make(frames, order.node_id, damage)
    except _MISFITS as error:  # one of them has values that fit into no column
        return _make(list(takewhile(_fits, frames)), order.node_id, f"{type(error).__name__}: {error}")


def _decode(parts: Sequence[Part]) -> tuple[list[Frame], str]:
    """The frames before the first damaged one, and what is wrong with that."""
    frames: list[Frame] = []
    for part in parts:
        try:
            frame = decode_frame(part.data)
        except (MsgspecError, ValueError, KeyError) as error:
            return frames, f"{type(error).__name__}: {error}"
        if (frame.first, frame.last) != (part.first, part.last):
            return (
                frames,
                f"a frame of {frame.first} to {frame.last} where {part.first} to {part.last} should be",
            )
        frames.append(frame)
    return frames, ""


def _make(frames: list[Frame], node_id: str, damage: str) -> Sealed:
    if not frames:
        return Sealed(0, damage=damage)
    from penstock.storage.disk.columns import (  # noqa: PLC0415 - Arrow is for the child alone
        encode_batch,
        summarize,
        to_batch,
    )

    batch = to_batch(frames, node_id)
    stream = encode_batch(batch) if batch.num_rows else b""
    summary, extents = summarize(frames, batch, len(stream))
    places = [
        (sequence_key(topic, extent.first), pack_place(summary.first, extent.last))
        for topic, extent in extents.items()
    ]
    return Sealed(len(frames), summary, stream, encode_extents(extents), places, damage)


def _fits(frame: Frame) -> bool:
    try:
        _make([frame], "", "")
    except _MISFITS:
        return False
    return True


def serve(orders: IO[bytes], answers: IO[bytes]) -> None:
    """Do one order after another until there are no more."""
    while (data := _receive(orders)) is not None:
        _send(answers, seal(_orders.decode(data)))


def main() -> None:
    """Serve the process that started this one."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they are for the server, which still wants its seal at hand
    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
