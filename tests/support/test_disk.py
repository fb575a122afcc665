"""The disk that tests crash on: whole turns are committed or nothing, and a failure keeps what it must."""

from penstock.core.durability.records import BEHIND, MOVES, BehindRecord, MovesRecord
from penstock.errors import StorageUnavailable
from penstock.model import Reason
from tests.support.clock import ManualClock, ManualScheduler
from tests.support.disk import RETRY_S, Disk, DiskLog
from tests.support.samples import make_run
from tests.support.turns import end_turn


class Machine:
    """A disk with a loop around it."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.start()

    def start(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.log: DiskLog = self.disk.mount(self.scheduler, self.clock)
        self.told: list[Exception | None] = []

    def write(self, offset: int) -> None:
        """Leave a message and a record, and wait for them."""
        self.log.sequencer.turn.runs.append(make_run("a", b"x", qos=1, offset=offset, sequence=offset))
        self.log.sequencer.turn.put(BEHIND, "c", BehindRecord(offset))
        self.log.when_committed(self.log.ticket, self.told.append)

    def end_turn(self, head: int) -> None:
        end_turn(self.log, head)

    @property
    def offsets(self) -> list[int]:
        """What another process would find."""
        return [run.offset for run in self.disk.content.runs]

    @property
    def records(self) -> list[object]:
        return [record for _, record in self.log.state.scan(BEHIND)]


def test_a_commit_is_made_in_one_turn_of_the_loop_and_told_of_in_the_next() -> None:
    machine = Machine()
    ticket = machine.log.ticket
    machine.write(1)
    machine.end_turn(1)
    assert machine.offsets == []
    machine.scheduler.turn()
    assert (machine.offsets, machine.told, machine.log.last_offset) == ([1], [], 0)
    assert not machine.log.is_committed(ticket)
    machine.scheduler.turn()
    assert (machine.told, machine.log.last_offset, machine.records) == ([None], 1, [BehindRecord(1)])
    assert machine.log.is_committed(ticket)


def test_a_turn_that_is_not_over_is_not_committed() -> None:
    machine = Machine()
    machine.write(1)
    machine.end_turn(1)
    machine.write(2)
    machine.scheduler.settle()
    assert (machine.offsets, machine.told, machine.records) == ([1], [None], [BehindRecord(1)])
    assert [run.offset for run in machine.log.uncommitted(0)] == [2]
    machine.end_turn(2)
    machine.scheduler.settle()
    assert (machine.offsets, machine.records) == ([1, 2], [BehindRecord(2)])


def test_after_a_crash_only_what_was_committed_is_there_and_nobody_is_told_anything() -> None:
    machine = Machine()
    machine.write(1)
    machine.end_turn(1)
    machine.scheduler.turn()
    machine.write(2)
    machine.end_turn(2)
    machine.disk.crash()
    machine.scheduler.settle()
    assert machine.told == []
    machine.start()
    assert (machine.offsets, machine.log.last_offset, machine.log.epoch) == ([1], 1, 2)
    assert (machine.log.end_of(1), machine.records) == (1, [BehindRecord(1)])


def test_a_stuck_disk_commits_when_it_is_told_to() -> None:
    machine = Machine()
    machine.disk.is_stuck = True
    machine.write(1)
    machine.end_turn(1)
    machine.scheduler.settle()
    assert (machine.offsets, machine.told) == ([], [])
    machine.disk.sync()
    assert (machine.offsets, machine.told) == ([1], [None])


def test_a_full_disk_gives_up_every_message_and_keeps_the_changes_for_later() -> None:
    machine = Machine()
    machine.disk.is_full = True
    machine.write(1)
    machine.end_turn(1)
    machine.write(2)  # in a turn that is not over
    machine.scheduler.settle()
    assert [type(failure) for failure in machine.told] == [StorageUnavailable, StorageUnavailable]
    assert machine.log.failure is not None
    machine.write(3)
    machine.end_turn(3)
    machine.disk.is_full = False
    machine.scheduler.advance(RETRY_S)
    assert machine.log.failure is None
    assert (machine.offsets, machine.records, machine.log.last_offset) == ([], [BehindRecord(3)], 3)
    assert [machine.log.reason_of(offset) for offset in (1, 2, 3)] == [Reason.NEVER_STORED] * 3


def test_numbered_records_are_there_after_a_crash_but_for_those_that_were_cut() -> None:
    machine = Machine()
    for number, name in enumerate("abc"):
        machine.log.sequencer.turn.put(MOVES, number, MovesRecord({name: []}))
    machine.end_turn(0)
    machine.log.sequencer.turn.cut(MOVES, 2)
    machine.end_turn(0)
    machine.scheduler.settle()
    machine.start()
    assert list(machine.log.state.replay(MOVES)) == [(2, MovesRecord({"c": []}))]


def test_the_log_says_why_a_message_is_not_there() -> None:
    machine = Machine()
    for offset in (1, 2, 3):
        machine.write(offset)
    machine.end_turn(3)
    machine.scheduler.settle()
    machine.disk.trim(1)
    del machine.disk.content.runs[0]
    assert machine.log.load((1, 2, 3)).keys() == {3}
    reasons = [machine.log.reason_of(offset) for offset in (1, 2, 4)]
    assert reasons == [Reason.RETENTION, Reason.DAMAGED, Reason.NEVER_STORED]


def test_what_was_stored_lives_as_long_as_it_was_to_live() -> None:
    machine = Machine()
    run = make_run("a", b"x", qos=1, offset=1, ttl=60.0)
    run.published_at = machine.clock.wall_us()
    machine.log.sequencer.turn.runs.append(run)
    machine.end_turn(1)
    machine.scheduler.settle()
    machine.start()
    machine.clock.advance(20.0)
    assert machine.log.load((1,))[1].expires_at == machine.clock.monotonic() + 40.0
    machine.clock.jump(-3_600)
    assert machine.log.load((1,))[1].expires_at == machine.clock.monotonic() + 60.0
