"""When a client tries again, and after what."""

import pytest

from penstock.client import ConnectionLost, Reconnection
from penstock.client.reconnection import is_worth_a_try
from penstock.client.statuses import CATALOGUE, error_from, named_error
from penstock.errors import PenstockError


def test_the_delay_doubles_up_to_its_limit_and_jitter_is_added() -> None:
    policy = Reconnection()
    assert [policy.delay_s(attempt, lambda: 0.0) for attempt in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert policy.delay_s(0, lambda: 0.5) == pytest.approx(1.05)
    assert policy.delay_s(10_000, lambda: 1.0) == pytest.approx(33.0)


def test_attempts_are_unlimited_unless_a_number_is_given() -> None:
    assert Reconnection().may_try(10**9)
    assert [Reconnection(attempts=2).may_try(attempt) for attempt in range(3)] == [True, True, False]
    assert not Reconnection(attempts=0).may_try(0)
    with pytest.raises(ValueError, match="not negative"):
        Reconnection(initial_s=-1)


@pytest.mark.parametrize("status", ["UNAVAILABLE", "DEADLINE_EXCEEDED"])
def test_a_server_that_is_not_there_is_tried_again(status: str) -> None:
    assert isinstance(error_from(status, "gone"), ConnectionLost)
    assert is_worth_a_try(error_from(status, "gone"))


@pytest.mark.parametrize(
    "status",
    ["PERMISSION_DENIED", "INVALID_ARGUMENT", "UNIMPLEMENTED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED"],
)
def test_a_server_that_says_no_is_not_tried_again(status: str) -> None:
    assert not is_worth_a_try(error_from(status, "no"))


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_code_of_the_catalogue_becomes_its_error(code: str) -> None:
    kind = CATALOGUE[code]
    assert type(named_error(code, "text")) is kind
    assert type(error_from("UNKNOWN", f"{code}: text")) is kind
    assert str(error_from("UNKNOWN", f"{code}: text")) == "text"
    assert type(error_from("UNAVAILABLE", "text", code)) is kind


def test_a_text_with_a_colon_is_not_taken_for_a_code() -> None:
    error = error_from("INTERNAL", "surprise: no code")
    assert (type(error), str(error)) == (PenstockError, "surprise: no code")


def test_what_grpc_itself_says_is_understood() -> None:
    text = "CLIENT: Sent message larger than max (5 vs. 4)"
    assert error_from("RESOURCE_EXHAUSTED", text).code == "too-large"
    assert is_worth_a_try(error_from("INTERNAL", "Internal error from Core"))
