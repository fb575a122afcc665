"""What tasks count on the way, and how much they bring home."""

from penstock.pipeline.jobs.audit.findings import Finding
from penstock.pipeline.jobs.audit.tally import Tallies, Tally, add_up
from tests.pipeline.jobs.auditing import run

SOMETHING = Finding("missing", "a", 1, 1, 1, 1)


def test_topics_and_epochs_of_all_tasks_are_added_up() -> None:
    one, other = Tally(), Tally()
    list(one.watch([run(1, 2), run(3, 4, epoch=2), run(1, 1, topic="b")]))
    list(other.watch([run(1, 2, topic="c", epoch=2), run(1, 2, topic="d", is_inside=False)]))
    findings = [*one.end(iter([SOMETHING]), 5), *other.end(iter([]), 5)]
    assert add_up(findings) == ([SOMETHING], Tallies(3, 2, 9, is_all=True, claims=[]))


def test_more_findings_than_one_task_brings_home_are_told() -> None:
    found, counted = add_up(list(Tally().end(iter([SOMETHING] * 7), 5)))
    assert (len(found), counted.is_all) == (5, False)


def test_what_is_known_never_stands_in_the_way_of_what_is_wrong() -> None:
    known = Finding("known", "k", 1, 2, 3, 2, "expired")
    claim = Finding("claim", "", 0, 5, 9, 2, "expired")
    tasks = [Tally().end([known, claim] * 7 + [SOMETHING], 5) for _ in range(2)]
    found, counted = add_up([each for task in tasks for each in task])
    assert (found.count(known), found.count(SOMETHING)) == (10, 2)
    assert (counted.is_all, counted.known) == (True, {"expired": 28})
    assert counted.claims == [claim._replace(messages=28)]
