"""Replay job: publishes messages of lake and log again, slice by slice, at the chosen pace, exactly once.

The job counts all messages, cuts them into slices and stores the plan. It stages slices in loads, one load
ahead of publishing, and commits them one by one in log order. The idempotency key of a commit names the
replay and the slice: a restarted replay repeats the commit in progress, and the server knows whether it was
made.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from uuid import uuid4

from pyspark.sql import SparkSession

from penstock.client import HttpRefused
from penstock.errors import Conflict, NoLog, NotAuthorized, UnknownStage
from penstock.lake.table import lake_table
from penstock.spark.connection import Connection
from penstock.spark.jobs.replay.messages import ReplayMessages
from penstock.spark.jobs.replay.options import ReplayOptions
from penstock.spark.jobs.replay.plan import State, plan_loads
from penstock.spark.jobs.replay.staging import Prefetch, SliceStaging, Stages
from penstock.spark.jobs.run import Progress, Report, check_server
from penstock.spark.options import time_text, write_options
from penstock.spark.sink.staging import commit, drop_matching, stage_prefix_under
from penstock.spark.tasks import Interrupted, interruptible

_SECOND_US = 1_000_000
_POLL_S = 0.1
_GONE = (UnknownStage.code, Conflict.code)
"""Error codes of a commit whose stages are missing or incomplete."""


def replay(
    options: ReplayOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Publish messages again under another prefix; the same options resume an unfinished replay.

    Raises:
        PenstockError: it failed; progress is stored.
    """
    options.check()
    work = _Replay(options, spark, progress, stopping)
    state = work.begin()
    if state is None:
        return Report(job="replay", facts={"published_now": 0, "is_finished": False})
    try:
        work.publish(state)
    finally:
        if not state.is_finished:
            work.drop_staged(state)
    return work.report(state)


def has_work(options: ReplayOptions) -> bool:
    """Preflight check without Spark: True if messages are left to publish.

    Raises:
        PenstockError: lake or server is missing, or the replay is known to be impossible.
    """
    options.check()
    if options.lake is not None:
        lake_table(options.lake)
    connection = write_options(options.server).connection
    _check_server(connection)
    state = None if options.again else State.load(options.state_file, _identity(options, connection))
    if state is not None and state.is_finished:
        return False
    if not options.lake_only:
        check_server(connection, options.filters)
    return True


def _check_server(connection: Connection) -> None:
    """Fail early if the server is unavailable or refuses staging."""
    list(connection.client().stages("-"))


def _identity(options: ReplayOptions, connection: Connection) -> dict[str, str]:
    """Options and destination that distinguish this replay from others."""
    return {**options.identity, "target": _target(options, connection)}


def _target(options: ReplayOptions, connection: Connection) -> str:
    """Identity of the destination: its log, or its address if it reports no log."""
    try:
        found = connection.retry(lambda client: client.position(filters=options.filters))
    except HttpRefused as error:
        if error.code not in (NoLog.code, NotAuthorized.code):
            raise
        return connection.address
    return f"log {found.log_id}"


class Pace:
    """Paces publishing: each slice is due as long after the first as originally, divided by the speed.

    The clock starts with the first slice, so a resumed replay does not make up for the pause.
    """

    def __init__(
        self,
        speed: float | None,
        stopping: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._speed = speed
        self._stopping = stopping
        self._clock = clock
        self._began: tuple[int, float] | None = None
        self.late_s = 0.0
        """Delay of the last slice."""

    def wait(self, when: int) -> bool:
        """Wait until a slice of this time, in microseconds, is due; False if the job is to stop."""
        if self._speed is None:
            return not self._stopping.is_set()
        if self._began is None:
            self._began = when, self._clock()
        first, began = self._began
        left_s = began + (when - first) / _SECOND_US / self._speed - self._clock()
        self.late_s = max(-left_s, 0.0)
        return not (self._stopping.wait(left_s) if left_s > 0 else self._stopping.is_set())


class _Replay:
    """One run of a replay."""

    def __init__(
        self, options: ReplayOptions, spark: SparkSession, progress: Progress, stopping: threading.Event
    ) -> None:
        self._options = options
        self._spark = spark
        self._progress = progress
        self._stopping = stopping
        self._connection = write_options(options.server).connection
        self._messages = ReplayMessages(spark, options, self._connection)
        self._run = uuid4().hex[:12]
        self._rows = 0
        self._repeated = 0

    def begin(self) -> State | None:
        """The stored progress, or a new plan; None if stopped before there is one."""
        _check_server(self._connection)
        options, identity = self._options, _identity(self._options, self._connection)
        state = None if options.again else State.load(options.state_file, identity)
        if state is None:
            self._progress.show("counting messages")
            try:
                with interruptible(self._spark, self._stopping):
                    slices = self._messages.plan()
            except Interrupted:
                return None
            if self._messages.left_out:
                self._progress.note(
                    f"{self._messages.left_out:,} messages are skipped: their topics begin with "
                    f"{options.prefix} already"
                )
            return State.begin(options.state_file, identity, self._messages.end(), slices)
        if state.is_finished:
            self._progress.note("this replay is finished: --again publishes everything again")
        else:
            self._progress.note(f"{state.rows_done:,} messages were published before: resuming after them")
            drop_matching(self._connection, stage_prefix_under(state.plan.id))  # stages of a killed run
        return state

    def publish(self, state: State) -> None:
        """Publish the rest, until stopped."""
        plan, pace = state.plan, Pace(self._options.speed, self._stopping)
        staging = SliceStaging(
            self._spark, self._messages, plan, self._options.prefix, self._connection, self._run
        )
        while not (state.is_finished or self._stopping.is_set()):
            before = state.done
            try:
                with Prefetch(self._spark, staging.stage) as ahead:
                    for load, staged in ahead.take(plan_loads(plan.slices, state.done, self._options.speed)):
                        stages = self._awaited(staged)
                        for number in range(load.begin, load.end):
                            if stages is None or not pace.wait(plan.slices[number].time):
                                return
                            self._commit(state, number, stages[number])
                            self._show(state, pace)
            except HttpRefused as error:
                if error.code not in _GONE or state.done == before:
                    raise
                self._progress.note("staged messages have lapsed, and are staged again")

    def _awaited(self, staged: "Future[Stages]") -> Stages | None:
        """The stages of a load; None if stopped before."""
        while not self._stopping.is_set():
            if wait([staged], _POLL_S).done:
                return staged.result()
        return None

    def _commit(self, state: State, number: int, stage: str) -> None:
        done = commit(self._connection, state.plan.key(number), {stage: state.plan.slices[number].rows})
        state.advance()
        if done.duplicate:
            self._repeated += done.rows
        else:
            self._rows += done.rows

    def _show(self, state: State, pace: Pace) -> None:
        late = f", {pace.late_s:.0f} s late" if pace.late_s >= 1 else ""
        self._progress.show(f"{state.rows_done:,} of {state.rows:,} messages{late}")

    def drop_staged(self, state: State) -> None:
        """Drop stages of this run that will not be published; another run may be active."""
        drop_matching(self._connection, stage_prefix_under(state.plan.id), self._run)

    def report(self, state: State) -> Report:
        """Report of this run and earlier ones."""
        times = [part.time for part in state.plan.slices]
        facts = {
            "messages": state.rows,
            "published": state.rows_done,
            "published_now": self._rows,
            "known_to_be_published": self._repeated,
            "is_finished": state.is_finished,
            "oldest": _time_of(min(times, default=None)),
            "prefix": self._options.prefix,
            "id": state.plan.id,
            "state": str(state.file),
        }
        return Report(job="replay", facts=facts)


def _time_of(microseconds: int | None) -> str | None:
    return None if microseconds is None else time_text(datetime.fromtimestamp(microseconds / 1e6, UTC))
