"""A Spark cluster on this machine, from nothing but the packages: a master and workers as processes."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from penstock.spark.jvm import java_home
from tests.spark.jvms import PLAIN, QUICK, QUICK_DRIVER

SPARK_HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
MASTER = ["spark-class", "org.apache.spark.deploy.master.Master"]
WORKER = ["spark-class", "org.apache.spark.deploy.worker.Worker"]


class Cluster:
    """A master and its workers, each with one core."""

    def __init__(self, folder: Path, url: str, workers: Sequence[Path]) -> None:
        self.url = url
        self.folder = folder
        self._workers = workers

    def submit(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run `penstock` with these words through spark-submit."""
        job = self.folder / "job.py"
        job.write_text("from penstock.cli import main\n\nmain()\n", encoding="utf-8")
        confs = {
            **QUICK_DRIVER,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK,
        }
        flags = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
        return subprocess.run(
            [SPARK_HOME / "bin" / "spark-submit", "--master", self.url, *flags, job, *words],
            capture_output=True,
            text=True,
            env=environment(self.folder),
            cwd=self.folder,
            check=False,
            timeout=START_TIMEOUT_S * 2,
        )

    def executors(self) -> list[int]:
        """How many executors each worker has had so far."""
        return [len(list(folder.glob("app-*/*/stderr"))) for folder in self._workers]


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a cluster; nothing of it is left afterwards."""
    with ExitStack() as running:
        listening = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = running.enter_context(daemon(folder, "master", [*MASTER, *listening]))
        url = wait_for(master, r"Starting Spark master at (spark://\S+)")
        places = [folder / f"worker-{number}" for number in range(workers)]
        for place in places:
            flags = [*listening, "--cores", "1", "--memory", "1g", "--work-dir", str(place), url]
            running.enter_context(daemon(folder, place.name, [*WORKER, *flags]))
        for place in places:
            wait_for(folder / f"{place.name}.log", "Successfully registered with master")
        yield Cluster(folder, url, places)


@contextmanager
def daemon(folder: Path, name: str, words: Sequence[str]) -> Iterator[Path]:
    """One of Spark's own programs, and the processes that it starts; gives its log."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / words[0]), *words[1:]],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(folder),
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        finally:
            _kill_group(process.pid)
            process.wait()


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of them had gone by themselves


def wait_for(log: Path, words: str) -> str:
    """What a log says, as soon as it does."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if found := re.search(words, log.read_text(encoding="utf-8", errors="replace")):
            return found[found.lastindex or 0]
        time.sleep(0.05)
    raise RuntimeError(f"{log.name} does not say {words!r}: {log.read_text(encoding='utf-8')}")


def environment(folder: Path) -> dict[str, str]:
    """What Spark's programs need to know, and nothing that a session of the tests may have set."""
    ours = {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_DAEMON_MEMORY": "600m",
        "SPARK_LAUNCHER_OPTS": PLAIN,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return {**{name: value for name, value in os.environ.items() if "SPARK" not in name}, **ours}
