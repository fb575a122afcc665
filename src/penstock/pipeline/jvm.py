"""The JVM behind a Spark session: started without a sound, and ended for good.

Python and Spark talk through a gateway. Where `spark-submit` started this process it is there already, and is
left alone when we are done.
"""

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import InvalidConfig
from penstock.pipeline.java import java_home
from penstock.pipeline.jobs.failures import sentence_in

GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""What `spark-submit` sets for the program that it starts."""
_KEPT_LINES = 200
_END_TAKES_S = 20.0
_LOOK_EVERY_S = 1.0


class Jvm:
    """A JVM and the gateway to it."""

    def __init__(self, gateway: Any) -> None:
        self.gateway = gateway
        self._process: subprocess.Popen[bytes] | None = gateway.proc
        self._parent = os.getppid()
        if self._process is None:
            threading.Thread(target=self._outlive, daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """It can still be talked to."""
        if self._process is None:
            return os.getppid() == self._parent
        return self._process.poll() is None

    def _outlive(self) -> None:
        """Stop when `spark-submit` has gone, as it leaves whom it started behind."""
        while self.is_alive:
            time.sleep(_LOOK_EVERY_S)
        os.kill(os.getpid(), signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, if it is ours."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Wait until it has gone, if it is ours, so that another one can be started."""
        if self._process is None:
            return
        with suppress(Py4JError, OSError):  # it may have gone by itself
            self.gateway.shutdown()
        with SparkContext._lock:
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        if self._process.stdin is not None:
            self._process.stdin.close()  # which is what it waits for
        try:
            self._process.wait(_END_TAKES_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_submitted() -> bool:
    """Whether `spark-submit` started this process."""
    return GATEWAY_PORT in os.environ


def start_jvm(confs: Mapping[str, str], log: Path | None = None, *, is_heard: bool = False) -> Jvm:
    """Start a JVM with these settings of Spark, or find the one of `spark-submit`.

    Args:
        log: a file for what it prints; default: nowhere.
        is_heard: what it prints as its output, such as the rows of the format `console`, is output of ours.

    Raises:
        InvalidConfig: it does not start, or there is no Java, or the file cannot be written.
    """
    if is_submitted():
        return Jvm(_launch(None, {}))
    os.environ["JAVA_HOME"] = str(java_home())
    conf = SparkConf(loadDefaults=False).setAll(list(confs.items()))
    words = _LastWords() if log is None else _open(log)
    try:
        # A session of its own: a Ctrl-C is for us and not for Spark's workers, whose tasks would fail.
        output = None if is_heard else words
        return Jvm(_launch(conf, {"stdout": output, "stderr": words, "start_new_session": True}))
    except PySparkRuntimeError:
        why = words.complaint() if isinstance(words, _LastWords) else f"see {log}"
        raise InvalidConfig(f"Spark does not start: {why}") from None
    finally:
        words.close()


def _launch(conf: SparkConf | None, options: dict[str, Any]) -> Any:
    """PySpark's own start, out of reach of a Ctrl-C: interrupted, it would leave a JVM behind for ever."""
    with ThreadPoolExecutor(1) as aside:
        starting = aside.submit(launch_gateway, conf, options)
        try:
            return starting.result()
        except KeyboardInterrupt:
            Jvm(starting.result()).kill()
            raise


def _open(log: Path) -> IO[bytes]:
    try:
        return log.open("ab")
    except OSError as error:
        raise InvalidConfig(f"--spark-log {log}: {error.strerror}") from None


class _LastWords:
    """Something to print to, of which the end is kept for a while."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._listen, args=(reading,), daemon=True)
        self._thread.start()
        self._is_open = True

    def fileno(self) -> int:
        """What a process takes for its output."""
        return self._writing

    def close(self) -> None:
        """Let go of our own end of it."""
        if self._is_open:
            os.close(self._writing)
            self._is_open = False

    def _listen(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as source:
            self._lines.extend(source)

    def complaint(self) -> str:
        """Why whoever printed has ended, as far as one line of it says so."""
        self.close()
        self._thread.join(_END_TAKES_S)
        lines = [line.strip() for line in self._lines if line.strip()]
        likely = (line for line in lines if "Error" in line or "Exception" in line)
        return sentence_in(next(likely, lines[-1] if lines else "it does not say why"))
