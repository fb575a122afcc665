"""Drops: what a session does not get is in the ledger, and counts for its reports while it is connected."""

from collections import deque

import pytest

from penstock.core.delivery.outbox import Entry
from penstock.core.sessions.session import Session
from penstock.model import Policy, Reason
from tests.support.broker import Stage
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_run


@pytest.fixture
def stage() -> Stage:
    return Stage()


def counts(session: Session) -> tuple[int, int]:
    """Dropped and expired messages that the door of a session has not asked for yet."""
    return (0, 0) if session.losses is None else (session.losses.dropped, session.losses.expired)


def test_drop_is_recorded_with_its_policy_and_counts_for_the_reports(stage: Stage) -> None:
    session = stage.client("r").session
    run = make_run("a", b"1", b"2", sequence=1)
    stage.node.drops.drop(run, session, Reason.OUTBOX_FULL, Policy.DROP_NEWEST, "outbox")
    (row,) = stage.broker.ledger.rows(client_id="r")
    assert (row.first, row.last, row.reason, row.policy) == (1, 2, Reason.OUTBOX_FULL, Policy.DROP_NEWEST)
    assert counts(session) == (2, 0)
    assert stage.node.slow_consumers.dropped_by("r") == 2


def test_expired_message_counts_as_expired_and_makes_no_client_slow(stage: Stage) -> None:
    session = stage.client("r").session
    stage.node.drops.expire_all([make_run("a", b"1", sequence=1)], session)
    assert stage.losses("r") == [("a", 1, 1, "expired")]
    assert counts(session) == (0, 1)
    assert stage.node.slow_consumers.dropped_by("r") == 0


def test_drop_of_a_disconnected_session_makes_no_client_slow(stage: Stage) -> None:
    client = stage.client("r", clean=False, expiry=60.0)
    client.drop()
    run = make_run("a", b"1", sequence=1)
    stage.node.drops.drop(run, client.session, Reason.OFFLINE_QUEUE_FULL, Policy.DROP_NEWEST, "sessions.owed")
    assert stage.losses("r") == [("a", 1, 1, "owed-full")]
    assert stage.node.slow_consumers.dropped_by("r") == 0


def test_queued_messages_of_an_ended_session_and_of_a_group_have_their_own_names_in_the_ledger(
    stage: Stage,
) -> None:
    client = stage.client("r")
    client.subscribe("$share/g/a", qos=1)
    group = next(iter(client.session.groups or ()))
    queue: deque[Entry] = deque([(make_run("a", b"1", sequence=1), PlainEncoding(qos=1))])
    stage.node.drops.record(queue, "r", Reason.SESSION_ENDED)
    stage.node.drops.expire_in_group([make_run("a", b"2", sequence=2)], group)
    assert stage.losses("r") == [("a", 1, 1, "session-ended")]
    assert stage.losses("$share/g/a") == [("a", 2, 2, "expired")]
