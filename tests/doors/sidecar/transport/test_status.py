"""Each error of the catalogue has a status at this door."""

import pytest

from penstock import errors
from penstock.doors.sidecar.transport.status import STATUSES, error_of, status_of, text_of
from penstock.errors import InvalidTopic, NotAuthorized, PenstockError, QuotaExceeded, ShuttingDown
from penstock.wire.grpc import CallFault, Status

CATALOGUE = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)
]


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_error_has_a_status_of_its_own_that_is_not_ok(kind: type[PenstockError]) -> None:
    assert kind in STATUSES
    assert STATUSES[kind] is not Status.OK


@pytest.mark.parametrize("kind", [kind for kind in CATALOGUE if kind.retryable])
def test_whoever_may_come_again_is_told_by_the_status(kind: type[PenstockError]) -> None:
    assert STATUSES[kind] in (Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED)


def test_the_statuses_are_those_that_clients_know() -> None:
    assert status_of(InvalidTopic("x")) is Status.INVALID_ARGUMENT
    assert status_of(NotAuthorized("x")) is Status.PERMISSION_DENIED
    assert status_of(QuotaExceeded("x")) is Status.RESOURCE_EXHAUSTED
    assert status_of(ShuttingDown("x")) is Status.UNAVAILABLE


def test_an_error_that_is_a_kind_of_another_has_its_status() -> None:
    assert status_of(CallFault(Status.INTERNAL, "x")) is Status.INVALID_ARGUMENT


def test_the_text_begins_with_the_code() -> None:
    assert text_of(InvalidTopic("a topic is not empty")) == "invalid-topic: a topic is not empty"


def test_a_commit_that_failed_can_be_tried_again() -> None:
    assert status_of(error_of(OSError("no room"))) is Status.UNAVAILABLE
    known = ShuttingDown("bye")
    assert error_of(known) is known
