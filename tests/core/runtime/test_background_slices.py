"""Work that nobody waits for: one after the other, in steps, whatever happens to one of them."""

from penstock.core.runtime import background as module
from penstock.core.runtime.background import Background, BackgroundJob, StepQueue
from tests.support.clock import ManualClock, ManualScheduler


class Work:
    """Takes some steps, each of which fills a turn of the loop."""

    def __init__(self, clock: ManualClock, name: str, steps: int, done: list[str]) -> None:
        self._clock, self._name, self._left, self._done = clock, name, steps, done

    def step(self) -> bool:
        self._clock.advance(module.WORK_S)
        self._done.append(self._name)
        self._left -= 1
        return self._left > 0


def test_one_work_follows_the_other_and_others_have_their_turn_between_the_steps() -> None:
    clock, done = ManualClock(), list[str]()
    scheduler = ManualScheduler(clock)
    BackgroundJob(
        Background(clock, scheduler), Work(clock, "a", 2, done).step, Work(clock, "b", 1, done).step
    ).begin()
    assert done == ["a"]
    scheduler.call_soon(lambda: done.append("somebody else"))
    scheduler.settle()
    assert done[-1] == "b"
    assert done.index("somebody else") < done.index("b")
    assert done.count("a") == 2


def test_a_work_that_fails_does_not_stop_those_behind_it() -> None:
    clock, done = ManualClock(), list[str]()

    def fail() -> bool:
        raise ValueError("broken")

    BackgroundJob(Background(clock, ManualScheduler(clock)), fail, Work(clock, "b", 1, done).step).begin()
    assert done == ["b"]


def test_queued_jobs_run_in_order_and_one_that_fails_does_not_stop_the_next() -> None:
    clock, done = ManualClock(), list[str]()
    scheduler = ManualScheduler(clock)
    queue = StepQueue(Background(clock, scheduler))

    def fail() -> bool:
        raise ValueError("broken")

    queue.add(Work(clock, "a", 2, done).step)
    queue.add(fail)
    queue.add(Work(clock, "b", 1, done).step)
    assert (done, len(queue)) == (["a"], 3), "each step fills a turn"
    scheduler.settle()
    assert (done, len(queue)) == (["a", "a", "b"], 0)


def test_queued_job_can_be_finished_at_once() -> None:
    clock, done = ManualClock(), list[str]()
    scheduler = ManualScheduler(clock)
    queue = StepQueue(Background(clock, scheduler))
    queue.add(Work(clock, "a", 3, done).step)
    while queue.step_now():
        pass
    assert done == ["a"] * 3
    scheduler.settle()
    assert done == ["a"] * 3


def test_job_is_not_entered_again_within_its_own_step() -> None:
    clock = ManualClock()
    queue = StepQueue(Background(clock, ManualScheduler(clock)))
    done: list[str] = []

    def first() -> bool:
        done.append("first begins")
        queue.add(second)
        assert not queue.step_now()
        queue.finish()
        done.append("first ends")
        return False

    def second() -> bool:
        done.append("second")
        return False

    queue.add(first)
    assert done == ["first begins", "first ends", "second"]
    assert not queue
