"""A broker on a state store that another one has used before: what comes back."""

from penstock.core.away import AwayForm
from penstock.core.ports import Form
from penstock.core.sessions import Will
from penstock.testing import PlainForm, Stage


def remake(form: Form) -> Form:
    """What a door does with the stand-in of a restored subscription."""
    return PlainForm(qos=form.qos) if isinstance(form, AwayForm) else form


def test_a_session_comes_back_absent_and_is_owed_until_its_client_returns() -> None:
    before = Stage()
    before.client("c", clean=False, expiry=60.0).subscribe("a/#", 1)
    before.settle()

    after = Stage(state=before.state)
    after.client("p").publish("a/b", b"while away", qos=1)
    after.settle()
    client = after.client("c", clean=False, expiry=60.0, wire="new", reform=remake)
    after.settle()
    assert client.is_known
    assert [message.payload for message in client.take()] == [b"while away"]
    after.client("p").publish("a/c", b"live", qos=1)
    after.settle()
    assert [message.payload for message in client.take()] == [b"live"]


def test_a_session_that_ended_does_not_come_back() -> None:
    before = Stage()
    before.client("gone", clean=False, expiry=60.0)
    before.settle()
    assert list(before.state.scan("sessions"))
    before.client("gone", clean=True)
    before.settle()
    assert not Stage(state=before.state).client("gone", clean=False).is_known


def test_a_restored_session_expires_like_any_other() -> None:
    before = Stage()
    before.client("c", clean=False, expiry=60.0).subscribe("a/#", 1)
    before.settle()
    assert list(before.state.scan("sessions"))
    after = Stage(state=before.state)
    after.advance(61)
    assert "c" not in after.broker.sessions
    assert Stage(state=after.state).broker.sessions == {}


def test_the_will_of_a_session_that_did_not_return_is_published() -> None:
    before = Stage()
    will = Will("wills/c", b"gone", 0, False, delay=5.0)
    before.client("c", clean=False, expiry=60.0, will=will)
    before.settle()
    after = Stage(state=before.state)
    watcher = after.client("w")
    watcher.subscribe("wills/#")
    after.advance(6)
    assert [message.payload for message in watcher.take()] == [b"gone"]


def test_a_retained_value_comes_back_with_its_sequence() -> None:
    before = Stage()
    for payload in (b"old", b"new"):
        before.client("p").publish("a/b", payload, retain=True)
    after = Stage(state=before.state)
    client = after.client("c")
    client.subscribe("a/+")
    after.settle()
    (message,) = client.take()
    assert (message.payload, message.sequence, message.is_retained) == (b"new", 2, True)
    assert after.client("p").publish("a/b", b"newer").run.sequence == 3


def test_a_retained_value_that_was_deleted_stays_deleted() -> None:
    before = Stage()
    before.client("p").publish("a/b", b"value", retain=True)
    before.client("p").publish("a/b", b"", retain=True)
    after = Stage(state=before.state)
    assert len(after.broker.retained) == 0
