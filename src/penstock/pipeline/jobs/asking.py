"""Asks a server whether it is there and has a log, before anything else is begun.

Spark takes ten seconds to start, and a source waits in silence for a server that is away. Whoever gave a
wrong address hears of it at once, and whoever waits is told what for.
"""

import threading
import time
from collections.abc import Sequence

from penstock.client import LogPosition
from penstock.errors import PenstockError
from penstock.pipeline.jobs.running import Progress
from penstock.pipeline.source.connection import Connection, is_busy, is_passing

LOOK_EVERY_S = 1.0


def ask_first(
    connection: Connection, filters: Sequence[str] = (), *, is_patient: bool = False
) -> LogPosition | None:
    """Where the log of a server ends; None if it is to be waited for.

    Args:
        is_patient: a server that is away is waited for; one that is busy always is.

    Raises:
        PenstockError: it is not there, or has no log, or tells us nothing.
    """
    try:
        return connection.client().position(filters=filters)
    except PenstockError as error:
        if is_busy(error) or (is_patient and is_passing(error)):
            return None
        raise


def await_server(
    connection: Connection, filters: Sequence[str], progress: Progress, stopping: threading.Event
) -> PenstockError | None:
    """Wait for a server that is away, and say so; why it still was, if the job is to stop before it is back.

    Raises:
        PenstockError: what is wrong does not pass by itself, or did not for as long as the connection waits.
    """
    began = time.monotonic()
    while True:
        try:
            connection.client().position(filters=filters)
        except PenstockError as error:
            if not is_passing(error) or time.monotonic() - began >= connection.retry_for_s:
                raise
            progress.show(waiting_for(connection, error))
            if stopping.wait(LOOK_EVERY_S):
                return error
        else:
            return None


def waiting_for(connection: Connection, error: PenstockError) -> str:
    """What a job says while a server is away."""
    reason = str(error).removeprefix("no connection to ")
    if not reason.startswith(connection.address):
        reason = f"{connection.address}: {reason}"
    return f"waiting for {reason}"
