"""Spark session with the settings that Penstock needs, and without Spark's log on the console.

If `spark-submit` started this process, its settings take precedence. Otherwise a JVM is started here, which
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
from penstock.spark.errors import SparkFailed, is_spark_error, root_cause
from penstock.spark.jvm import Jvm, is_submitted, start_jvm

OURS = {
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults, unless set otherwise."""
LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Further defaults for a local master, which no other machine has to reach."""
PYTHON = "spark.pyspark.python"
STANDALONE = "spark://"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

Confs = Mapping[str, str]

_MASTER_RESPONDS_S = 10.0


def start_session(
    app_name: str = "penstock", master: str | None = None, confs: Confs | None = None
) -> SparkSession:
    """A Spark session for Penstock; an existing session of this process is reused.

    Output of Spark, such as the rows of the format `console`, is visible; its log is not.

    Args:
        master: the Spark master; default: that of `spark-submit`, else all cores of this machine.
        confs: Spark settings, which override Penstock's defaults.

    Raises:
        InvalidConfig: Spark does not start with these settings.
    """
    return running_session() or _start(app_name, master, confs or {}, None, is_heard=True)[0]


@contextmanager
def session(
    app_name: str, master: str | None = None, confs: Confs | None = None, *, log: Path | None = None
) -> Iterator[SparkSession]:
    """A Spark session for the length of a block, without any output; an existing session is left running.

    Args:
        log: a file that Spark's own log is appended to; default: discarded.
    """
    running = running_session()
    if running is not None:
        yield running
        return
    spark, jvm = _start(app_name, master, confs or {}, log)
    try:
        yield spark
    except KeyboardInterrupt:
        jvm.kill()  # at once: its work is not needed
        raise
    except Exception as error:
        if not jvm.is_alive:
            raise SparkFailed("Spark's JVM exited; use --spark-log to see its log") from error
        raise
    finally:
        if jvm.is_alive:
            spark.stop()
        jvm.end()


def running_session() -> SparkSession | None:
    """The Spark session that exists in this process."""
    context = SparkContext._active_spark_context
    return None if context is None else SparkSession.builder.getOrCreate()


def _start(
    app_name: str, master: str | None, confs: Confs, log: Path | None, *, is_heard: bool = False
) -> tuple[SparkSession, Jvm]:
    if is_submitted() and log is not None:
        raise InvalidConfig(
            "--spark-log cannot be used with spark-submit, which decides where Spark's log goes"
        )
    # Without it workers use any python3, which may lack Penstock.
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
        problem = root_cause(error) if is_spark_error(error) else None  # while the JVM still has the text
        jvm.end()
        if problem is not None:
            raise InvalidConfig(f"Spark does not start: {problem}") from None
        raise


def check_master(master: str) -> None:
    """Check that the master of a cluster responds: Spark itself would wait for more than a minute.

    Raises:
        InvalidConfig: it does not respond, or its address is not valid.
    """
    if master.startswith("sc://"):
        raise InvalidConfig(f"{master} is a Spark Connect server, on which jobs of Penstock do not run")
    if not master.startswith(STANDALONE):
        return
    for place in master.removeprefix(STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise InvalidConfig(
                f"{master!r} is not a valid address of a Spark master; write spark://host:7077"
            )
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _MASTER_RESPONDS_S):
            return
    raise InvalidConfig(f"no Spark master responds at {master}")


def _open(conf: SparkConf, jvm: Jvm) -> SparkSession:
    """A session with these settings, and Penstock's defaults where they are silent."""
    is_local = (conf.get("spark.master") or "").startswith("local")
    for name, value in (OURS | LOCAL if is_local else OURS).items():
        conf.setIfMissing(name, value)
    context = SparkContext(conf=conf, gateway=jvm.gateway)
    spark = SparkSession(context)
    if is_local and not conf.contains(SHUFFLE_PARTITIONS):  # Spark's default of 200 is meant for clusters
        spark.conf.set(SHUFFLE_PARTITIONS, context.defaultParallelism)
    return spark
