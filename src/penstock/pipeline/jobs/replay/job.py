"""Publishes what is in the lake and the log once more: slice by slice, each when its time has come, and once.

First everything is counted, cut into slices and written down. Then slices are staged in loads, one load ahead
of what is being published, and committed one by one in the order of the log. The key of a commit names the
replay and the slice: whoever is killed and begun again repeats the commit that was in hand, and the server
knows whether it was made.
"""

import threading
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from uuid import uuid4

from pyspark.sql import SparkSession

from penstock.client import HttpRefused
from penstock.errors import Conflict, NoLog, NotAuthorized, UnknownStage
from penstock.pipeline.jobs.asking import ask_first
from penstock.pipeline.jobs.replay.loading import Ahead, Loading, Stages
from penstock.pipeline.jobs.replay.options import ReplayOptions, time_text
from penstock.pipeline.jobs.replay.pacing import Pace
from penstock.pipeline.jobs.replay.reading import Messages
from penstock.pipeline.jobs.replay.slices import loads
from penstock.pipeline.jobs.replay.state import State
from penstock.pipeline.jobs.report import Report
from penstock.pipeline.jobs.running import Progress
from penstock.pipeline.lake.table import lake_table
from penstock.pipeline.lake.tasks import Interrupted, interrupting
from penstock.pipeline.sink.options import SinkOptions
from penstock.pipeline.sink.staging import clear, commit, names_under
from penstock.pipeline.source.connection import Connection

_LOOK_EVERY_S = 0.1
_GONE = (UnknownStage.code, Conflict.code)
"""What a commit answers if all or some of what was staged is not there any more."""


def replay(
    options: ReplayOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Publish messages again, under another prefix; the same options again go on where it ended.

    Raises:
        PenstockError: it cannot be done; what was published is remembered.
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
            work.clear(state)
    return work.report(state)


def has_work(options: ReplayOptions) -> bool:
    """Whether anything is left to publish; asks the server and looks at the lake, and needs no Spark.

    Raises:
        PenstockError: there is no lake or no server, or it is clear by now that it cannot be done.
    """
    options.check()
    if options.lake is not None:
        lake_table(options.lake)
    connection = SinkOptions.parse(options.server).connection
    _ask(connection)
    state = None if options.again else State.load(options.state_file, _what(options, connection))
    if state is not None and state.is_finished:
        return False
    if not options.lake_only:
        ask_first(connection, options.filters)
    return True


def _ask(connection: Connection) -> None:
    """Who is not there now is not waited for, nor who may not."""
    list(connection.client().stages("-"))


def _what(options: ReplayOptions, connection: Connection) -> dict[str, str]:
    """What tells this replay from others."""
    return {**options.what, "target": _target(options, connection)}


def _target(options: ReplayOptions, connection: Connection) -> str:
    """Which server gets the messages: by its log, or by its address if it tells of none."""
    try:
        found = connection.insist(lambda client: client.position(filters=options.filters))
    except HttpRefused as error:
        if error.code not in (NoLog.code, NotAuthorized.code):
            raise
        return connection.address
    return f"log {found.log_id}"


class _Replay:
    """One life of a replay."""

    def __init__(
        self, options: ReplayOptions, spark: SparkSession, progress: Progress, stopping: threading.Event
    ) -> None:
        self._options = options
        self._spark = spark
        self._progress = progress
        self._stopping = stopping
        self._connection = SinkOptions.parse(options.server).connection
        self._messages = Messages(spark, options, self._connection)
        self._run = uuid4().hex[:12]
        self._rows = 0
        self._repeated = 0

    def begin(self) -> State | None:
        """What was done before, or a new plan; None if it is to stop before there is one."""
        _ask(self._connection)
        options, what = self._options, _what(self._options, self._connection)
        state = None if options.again else State.load(options.state_file, what)
        if state is None:
            self._progress.show("counting messages")
            try:
                with interrupting(self._spark, self._stopping):
                    slices = self._messages.plan()
            except Interrupted:
                return None
            if self._messages.left_out:
                self._progress.note(
                    f"{self._messages.left_out:,} messages are left out: their topics begin with "
                    f"{options.prefix} already"
                )
            return State.begin(options.state_file, what, self._messages.end(), slices)
        if state.is_finished:
            self._progress.note("this replay is finished: --again publishes everything once more")
        else:
            self._progress.note(f"{state.rows_done:,} messages were published before: going on behind them")
            clear(self._connection, names_under(state.plan.id))  # what a life that was killed has left
        return state

    def publish(self, state: State) -> None:
        """Publish what is left, until it is told to stop."""
        plan, pace = state.plan, Pace(self._options.speed, self._stopping)
        loading = Loading(
            self._spark, self._messages, plan, self._options.prefix, self._connection, self._run
        )
        while not (state.is_finished or self._stopping.is_set()):
            before = state.done
            try:
                with Ahead(self._spark, loading.stage) as ahead:
                    for load, staged in ahead.take(loads(plan.slices, state.done, self._options.speed)):
                        stages = self._awaited(staged)
                        for number in range(load.begin, load.end):
                            if stages is None or not pace.wait(plan.slices[number].time):
                                return
                            self._commit(state, number, stages[number])
                            self._show(state, pace)
            except HttpRefused as error:
                if error.code not in _GONE or state.done == before:
                    raise
                self._progress.note("what was staged has lapsed, and is staged again")

    def _awaited(self, staged: "Future[Stages]") -> Stages | None:
        """What is being staged; None if it is to stop before."""
        while not self._stopping.is_set():
            if wait([staged], _LOOK_EVERY_S).done:
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

    def clear(self, state: State) -> None:
        """Drop what this run has staged and will not publish; another one may be at the same replay."""
        clear(self._connection, names_under(state.plan.id), self._run)

    def report(self, state: State) -> Report:
        """What was done, now and before."""
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
