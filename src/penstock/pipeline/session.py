"""A Spark session with everything set that the pipeline needs, and quiet.

Where `spark-submit` started this process its settings win over ours. Otherwise a JVM is started here, which
ends with the session.
"""

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.errors import InvalidConfig
from penstock.pipeline.jobs.failures import SparkFailed, is_of_spark, root_cause
from penstock.pipeline.jvm import Jvm, is_submitted, start_jvm

OURS = {
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What is set unless someone says otherwise."""
LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""The same where Spark is this machine alone: nobody else has to reach it."""
PYTHON = "spark.pyspark.python"
STANDALONE = "spark://"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

Confs = Mapping[str, str]

_MASTER_ANSWERS_S = 10.0


def start_session(
    app_name: str = "penstock", master: str | None = None, confs: Confs | None = None
) -> SparkSession:
    """A Spark session for the pipeline; the one that runs, if one does.

    What Spark prints as its output, such as the rows of the format `console`, is seen; its log is not.

    Args:
        master: where Spark runs; default: what `spark-submit` says, else all cores of this machine.
        confs: settings of Spark, which win over ours.

    Raises:
        InvalidConfig: Spark does not start like this.
    """
    return running_session() or _start(app_name, master, confs or {}, None, is_heard=True)[0]


@contextmanager
def session(
    app_name: str, master: str | None = None, confs: Confs | None = None, *, log: Path | None = None
) -> Iterator[SparkSession]:
    """The same for the length of a block, and without a sound; a session that ran before is left running.

    Args:
        log: a file that Spark's own log is appended to; default: nobody sees it.
    """
    running = running_session()
    if running is not None:
        yield running
        return
    spark, jvm = _start(app_name, master, confs or {}, log)
    try:
        yield spark
    except KeyboardInterrupt:
        jvm.kill()  # at once: nobody waits for what it is doing
        raise
    except Exception as error:
        if not jvm.is_alive:
            raise SparkFailed("Spark's JVM has ended; --spark-log keeps what it says") from error
        raise
    finally:
        if jvm.is_alive:
            spark.stop()
        jvm.end()


def running_session() -> SparkSession | None:
    """The session that this process has already."""
    context = SparkContext._active_spark_context
    return None if context is None else SparkSession.builder.getOrCreate()


def _start(
    app_name: str, master: str | None, confs: Confs, log: Path | None, *, is_heard: bool = False
) -> tuple[SparkSession, Jvm]:
    if is_submitted() and log is not None:
        raise InvalidConfig("--spark-log: here spark-submit decides where Spark's log goes")
    # Without it workers take any python3, which need not have Penstock.
    os.environ["PYSPARK_PYTHON"] = confs.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if master is None and not is_submitted():
        master = "local[*]"
    if master is not None:
        check_master(master)
    given = {**confs, "spark.app.name": app_name} | ({} if master is None else {"spark.master": master})
    jvm = start_jvm(given, log, is_heard=is_heard)
    try:
        conf = SparkConf(_jvm=jvm.gateway.jvm).setAll(list(given.items()))
        return _open(conf, jvm), jvm
    except BaseException as error:
        problem = root_cause(error) if is_of_spark(error) else None  # as long as the JVM can still say it
        jvm.end()
        if problem is not None:
            raise InvalidConfig(f"Spark does not start: {problem}") from None
        raise


def check_master(master: str) -> None:
    """Ask whether the master of a cluster answers: Spark itself would wait for more than a minute.

    Raises:
        InvalidConfig: it does not, or this is not how a master is written.
    """
    if master.startswith("sc://"):
        raise InvalidConfig(f"{master} is a server of Spark Connect, which the pipeline does not run on")
    if not master.startswith(STANDALONE):
        return
    for place in master.removeprefix(STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise InvalidConfig(f"{master!r} is no address of a Spark master; write spark://host:7077")
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _MASTER_ANSWERS_S):
            return
    raise InvalidConfig(f"no Spark master answers at {master}")


def _open(conf: SparkConf, jvm: Jvm) -> SparkSession:
    """A session with these settings, and ours where they say nothing."""
    is_local = (conf.get("spark.master") or "").startswith("local")
    for name, value in (OURS | LOCAL if is_local else OURS).items():
        conf.setIfMissing(name, value)
    context = SparkContext(conf=conf, gateway=jvm.gateway)
    spark = SparkSession(context)
    if is_local and not conf.contains(SHUFFLE_PARTITIONS):  # Spark's own 200 are for a cluster
        spark.conf.set(SHUFFLE_PARTITIONS, context.defaultParallelism)
    return spark
