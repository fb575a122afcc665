"""Sealing process: a child process that converts frames to Arrow batches, off the server's loop.

    python -m penstock.storage.disk.pieces.sealing_process

Requests come through stdin and results go through stdout, each prefixed with its length. It runs at low
priority and ends when its stdin closes, so it never outlives the server. It does not open the database:
requests and results carry the values. `SealingProcess` is the server's side.
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

from penstock.storage.disk.pieces.frames import Frame, Summary, decode_frame, encode_extents
from penstock.storage.disk.rocksdb.layout import pack_place, sequence_key

MODULE = "penstock.storage.disk.pieces.sealing_process"

_LENGTH = struct.Struct(">Q")
_PIPE_BYTES = 1 << 20  # large: each read has to acquire the interpreter lock
_NICENESS = 10
_TIMEOUT_S = 60.0
_EXIT_TIMEOUT_S = 1.0
_STDERR_BYTES = 2_000
_CONVERSION_ERRORS = (ArithmeticError, ValueError, struct.error)


class Part(Struct, frozen=True, array_like=True):
    """One stored frame, and the offsets it is expected to cover."""

    first: int
    last: int
    data: bytes


class SealRequest(Struct, frozen=True, array_like=True):
    """Contiguous frames to seal together."""

    node_id: str
    parts: Sequence[Part]


class SealResult(Struct, frozen=True, array_like=True):
    """A sealed batch, ready to be stored."""

    used: int
    """Number of leading parts in the batch; fewer than requested if one is damaged."""
    summary: Summary | None = None
    """None if the first part is damaged."""
    stream: bytes = b""
    """Empty if there are no messages."""
    topics: bytes = b""
    """Encoded extents."""
    places: Sequence[tuple[bytes, bytes]] = ()
    """Sequence keys of each topic with their values."""
    damage: str = ""
    """Error of the first unused part."""


class SealingFailed(Exception):
    """The child process ended or timed out; the text has the end of its stderr."""


_encoder = msgpack.Encoder()
_requests = msgpack.Decoder(SealRequest)
_results = msgpack.Decoder(SealResult)


class SealingProcess:
    """Server side of the child process, which is started on demand and restarted after a failure."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, if the process runs."""
        process = self._process
        return None if process is None else process.pid

    def seal(self, request: SealRequest) -> SealResult:
        """Seal frames in the child process. Not thread-safe.

        Raises:
            SealingFailed: the process failed. The next call starts a new one.
        """
        try:
            process = self._process = self._process or _start()
        except OSError as error:
            raise SealingFailed(f"the sealing process cannot be started: {error}") from error
        watchdog = Timer(self.timeout_s, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            _send(process.stdin, request)
            result = _receive(process.stdout)
        except OSError:  # the process died meanwhile
            result = None
        finally:
            watchdog.cancel()
        if result is None:
            raise SealingFailed(self._reap())
        return _results.decode(result)

    def kill(self) -> None:
        """Kill the process, from any thread; a running request fails."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Kill and reap the process; no request may be running."""
        self.kill()
        self._reap()

    def _reap(self) -> str:
        """Wait for the process to end; return its exit code and stderr as text."""
        process, self._process = self._process, None
        if process is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_TIMEOUT_S)  # prefer its own exit code to that of a kill
        process.kill()
        _, words = process.communicate()
        text = words[-_STDERR_BYTES:].decode(errors="replace").strip()
        return f"the sealing process ended with {process.returncode}: {text or 'no output'}"


def _start() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],  # -P: no imports from the working directory
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError, AttributeError):  # not supported here: only slower
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return process


def _send(pipe: IO[bytes], message: Struct) -> None:
    data = _encoder.encode(message)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    length = pipe.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    data = pipe.read(size)
    return data if len(data) == size else None


def seal(request: SealRequest) -> SealResult:
    """Make one batch of all frames before the first damaged one."""
    frames, damage = _decode(request.parts)
    try:
        return _make_batch(frames, request.node_id, damage)
    except _CONVERSION_ERRORS as error:  # a frame has values that fit into no column
        text = f"{type(error).__name__}: {error}"
        return _make_batch(list(takewhile(_is_convertible, frames)), request.node_id, text)


def _decode(parts: Sequence[Part]) -> tuple[list[Frame], str]:
    """The frames before the first damaged one, and its error."""
    frames: list[Frame] = []
    for part in parts:
        try:
            frame = decode_frame(part.data)
        except (MsgspecError, ValueError, KeyError) as error:
            return frames, f"{type(error).__name__}: {error}"
        if (frame.first, frame.last) != (part.first, part.last):
            return (
                frames,
                f"frame {frame.first}-{frame.last} found where {part.first}-{part.last} is expected",
            )
        frames.append(frame)
    return frames, ""


def _make_batch(frames: list[Frame], node_id: str, damage: str) -> SealResult:
    if not frames:
        return SealResult(0, damage=damage)
    from penstock.storage.disk.pieces.arrow_columns import (  # noqa: PLC0415 - only in the child process
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
    return SealResult(len(frames), summary, stream, encode_extents(extents), places, damage)


def _is_convertible(frame: Frame) -> bool:
    try:
        _make_batch([frame], "", "")
    except _CONVERSION_ERRORS:
        return False
    return True


def serve(requests: IO[bytes], results: IO[bytes]) -> None:
    """Handle one request after another until the input ends."""
    while (data := _receive(requests)) is not None:
        _send(results, seal(_requests.decode(data)))


def main() -> None:
    """Serve the parent process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the server, which still waits for its result
    os.nice(_NICENESS)
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with results
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, results)


if __name__ == "__main__":
    main()
