"""Errors of the clients, from gRPC statuses and codes."""

import pytest

from penstock.client import ConnectionLost
from penstock.client.errors import CATALOGUE, error_from_code, error_from_status, is_worth_retrying
from penstock.errors import PenstockError


@pytest.mark.parametrize("status", ["UNAVAILABLE", "DEADLINE_EXCEEDED"])
def test_a_server_that_is_not_there_is_tried_again(status: str) -> None:
    assert isinstance(error_from_status(status, "gone"), ConnectionLost)
    assert is_worth_retrying(error_from_status(status, "gone"))


@pytest.mark.parametrize(
    "status",
    ["PERMISSION_DENIED", "INVALID_ARGUMENT", "UNIMPLEMENTED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED"],
)
def test_a_server_that_says_no_is_not_tried_again(status: str) -> None:
    assert not is_worth_retrying(error_from_status(status, "no"))


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_code_of_the_catalogue_becomes_its_error(code: str) -> None:
    kind = CATALOGUE[code]
    assert type(error_from_code(code, "text")) is kind
    assert type(error_from_status("UNKNOWN", f"{code}: text")) is kind
    assert str(error_from_status("UNKNOWN", f"{code}: text")) == "text"
    assert type(error_from_status("UNAVAILABLE", "text", code)) is kind


def test_a_text_with_a_colon_is_not_taken_for_a_code() -> None:
    error = error_from_status("INTERNAL", "surprise: no code")
    assert (type(error), str(error)) == (PenstockError, "surprise: no code")


def test_what_grpc_itself_says_is_understood() -> None:
    text = "CLIENT: Sent message larger than max (5 vs. 4)"
    assert error_from_status("RESOURCE_EXHAUSTED", text).code == "too-large"
    assert is_worth_retrying(error_from_status("INTERNAL", "Internal error from Core"))
