"""Load generator: a native program, run once per measurement, that prints its figures as one line of JSON.

`pubsub.c` speaks MQTT, NATS and Redis, `websockets.c` WebSocket, `streams.c` HTTP streams, `grpc.cc` gRPC.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

import msgspec

from bench.load.meter import Meter, Reading
from bench.measurement import Measurement
from bench.peers.target import Target
from bench.scenarios import Scenario

TIMEOUT_S = 90.0  # beyond the measured time; the generator's own limits are shorter
SETTLE_S = 1.0  # before memory is read
REST_S = 3.0  # idle time that is measured; long, because CPU time has a resolution of 10 ms
REAPER_S = 1.5  # after the last disconnect, to count the work that a broker defers by up to a second
TEARDOWN_TIMEOUT_S = 60.0
FILES_SLACK = 16  # files that a broker may open for itself meanwhile


class LoadGenerator:
    """Runs scenarios against targets, one at a time, pinned to a core."""

    def __init__(self, program: Path, *, cpu: int | None, duration_s: float, warm_s: float) -> None:
        self._program = program
        self._cpu = cpu
        self._duration_s = duration_s
        self._warm_s = warm_s

    def measure(self, scenario: Scenario, target: Target) -> Measurement:
        """Run once; a failure is part of the measurement and not raised."""
        meter = Meter(target.port)
        before = meter.read()
        with self._running(scenario, target) as process:
            found = _read_measurement(process)
            after = meter.read()
            if found.error is not None:
                return found
            if found.connections is not None:
                if meter.is_blind:
                    return Measurement(error="the broker's process cannot be seen from here")
                time.sleep(SETTLE_S)
                if scenario.is_teardown:
                    _add_teardown(found, meter, before, process)
                elif scenario.is_resting:
                    found.resting_cpu = _resting_cpu(meter)
                else:
                    found.bytes_per_connection = (
                        meter.read().rss_bytes - before.rss_bytes
                    ) / found.connections
        if not meter.is_blind:
            _add_usage(found, before, after)
        return found

    def _command(self, scenario: Scenario, target: Target) -> list[str]:
        command = [
            str(self._program),
            "--proto",
            target.scheme,
            "--host",
            target.host,
            "--port",
            str(target.port),
        ]
        command += ["--duration", str(self._duration_s), "--warm", str(self._warm_s), *scenario.load]
        return command if self._cpu is None else [*command, "--cpu", str(self._cpu)]

    @contextmanager
    def _running(self, scenario: Scenario, target: Target) -> Iterator[subprocess.Popen[bytes]]:
        """Run the generator; a watchdog kills it, so that no run can block the bench."""
        with subprocess.Popen(
            self._command(scenario, target), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            watchdog = Timer(self._duration_s + self._warm_s + TIMEOUT_S, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                _close_input(process)
                watchdog.cancel()
                process.kill()


def _read_measurement(process: subprocess.Popen[bytes]) -> Measurement:
    line = process.stdout.readline() if process.stdout else b""
    try:
        return msgspec.json.decode(line, type=Measurement)
    except msgspec.DecodeError:
        return Measurement(error=f"the load generator printed {line.decode(errors='replace').strip()!r}")


def _close_input(process: subprocess.Popen[bytes]) -> None:
    """Close the generator's input, which ends it and all its connections at once."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(TEARDOWN_TIMEOUT_S)


def _add_teardown(
    found: Measurement, meter: Meter, before: Reading, process: subprocess.Popen[bytes]
) -> None:
    """Add the CPU time that losing all connections at once costs the broker."""
    standing = meter.read()
    few_files = before.open_files + FILES_SLACK
    _close_input(process)
    deadline = time.monotonic() + TEARDOWN_TIMEOUT_S
    while meter.read().open_files > few_files:
        if time.monotonic() > deadline:
            found.error = f"connections still open {TEARDOWN_TIMEOUT_S:.0f} s after they were closed"
            return
        time.sleep(0.02)
    time.sleep(REAPER_S)
    found.disconnect_cpu_s = round(meter.read().cpu_s - standing.cpu_s, 3)


def _resting_cpu(meter: Meter) -> float:
    before = meter.read()
    time.sleep(REST_S)
    after = meter.read()
    return (after.cpu_s - before.cpu_s) / (after.at_s - before.at_s)


def _add_usage(found: Measurement, before: Reading, after: Reading) -> None:
    elapsed_s = after.at_s - before.at_s
    broker_s = after.cpu_s - before.cpu_s
    load_s = (found.load_cpu or 0.0) * elapsed_s
    found.broker_cpu = round(broker_s / elapsed_s, 3)
    found.others_cpu = round(
        max(0.0, after.machine_cpu_s - before.machine_cpu_s - broker_s - load_s) / elapsed_s, 3
    )
    found.broker_rss_bytes = after.rss_bytes
    if counted := found.delivered or found.sent:
        found.cpu_us_per_delivery = round(broker_s * 1e6 / counted, 3)
