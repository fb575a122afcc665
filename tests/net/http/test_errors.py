"""Errors in HTTP's words: the table is complete, and both forms of an answer."""

import json

import pytest

from penstock import errors
from penstock.errors import PenstockError
from penstock.net.http.errors import STATUSES, headers_of, problem_of, response_for, response_to, status_of


def all_errors() -> list[type[PenstockError]]:
    return [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PenstockError)
    ]


def test_every_code_has_a_status() -> None:
    assert {error.code for error in all_errors()} == set(STATUSES)


def test_what_may_be_tried_again_says_when_and_nothing_else_does() -> None:
    for error in all_errors():
        has_time = any(name == "Retry-After" for name, _ in headers_of(error("x")))
        assert has_time == error.retryable
        assert not error.retryable or status_of(error) in (429, 503)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidTopic, 400),
        (errors.BadCredentials, 401),
        (errors.NotAuthorized, 403),
        (errors.UnknownHold, 404),
        (errors.NoLog, 404),
        (errors.NotAcceptable, 406),
        (errors.Conflict, 409),
        (errors.TooLarge, 413),
        (errors.UnsupportedMedia, 415),
        (errors.WaitTimeout, 424),
        (errors.QuotaExceeded, 429),
        (errors.PenstockError, 500),
        (errors.StorageUnavailable, 503),
        (errors.ShuttingDown, 503),
    ],
)
def test_statuses_are_those_that_are_promised(error: type[PenstockError], status: int) -> None:
    assert status_of(error) == status_of(error("x")) == status


def test_a_problem_has_what_rfc_9457_wants_and_our_code() -> None:
    assert problem_of(errors.QuotaExceeded("slow down"), errors=[1]) == {
        "type": "about:blank",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "slow down",
        "code": "quota-exceeded",
        "retryable": True,
        "errors": [1],
    }


@pytest.mark.parametrize(
    ("path", "is_problem"),
    [("/api/v1", True), ("/api/v1/x", True), ("/api/v10", False), ("/topics", False), ("", False)],
)
def test_the_form_depends_on_the_path(path: str, is_problem: bool) -> None:
    status, body, content_type = response_to(errors.InvalidTopic("no"), path)
    assert status == 400
    assert (content_type == "application/problem+json") is is_problem
    assert is_problem or json.loads(body) == {"detail": "no"}


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/api/v1/streams", "error"),
        ("/api/v1/streams/send", "error"),
        ("/api/v1/streams/nothing/here", "error"),
        ("/streams/receive", "error"),
        ("/streamsandmore", "detail"),
    ],
)
def test_callers_of_streams_are_told_in_one_key(path: str, key: str) -> None:
    for answer in (response_to(errors.InvalidTopic("no"), path), response_for(400, "no", "x", path)):
        assert answer == (400, b'{"%b":"no"}' % key.encode(), "application/json")


def test_a_path_that_only_begins_like_streams_has_problems() -> None:
    assert response_to(errors.InvalidTopic("no"), "/api/v1/streams2")[2] == "application/problem+json"
