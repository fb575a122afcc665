"""Whatever a client sends is a request or gets an error that clients know."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.core.sessions.session import Ending
from penstock.doors.web.socket.replies import ENDINGS, code_of, complaint_of, frame_of
from penstock.doors.web.socket.requests import (
    BadMessage,
    Ping,
    Publish,
    Subscribe,
    Unsubscribe,
    read_payload,
    read_request,
)
from penstock.errors import PenstockError

CODES = {"INTERNAL", "INVALID_JSON", "INVALID_MESSAGE", "UNKNOWN_MESSAGE_TYPE", "VALIDATION_ERROR"}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["type", "topic", "filter", "data", "last_n", "after", "request_id", "x"])
types = st.sampled_from(["subscribe", "unsubscribe", "publish", "ping", "dance"])


def outcome(message: str | bytes) -> type | str:
    """The kind of a request, or the code of the error, which can be told."""
    try:
        request = read_request(message)
        if isinstance(request, Publish):
            read_payload(request)
        return type(request)
    except BadMessage as bad:
        assert frame_of(complaint_of(bad))
        return bad.code


@given(st.dictionaries(names, values | types))
def test_any_object_is_a_request_or_an_error(said: dict[str, Any]) -> None:
    found = outcome(json.dumps(said))
    assert found in (Subscribe, Unsubscribe, Publish, Ping, *CODES)
    assert (found == "INVALID_MESSAGE") is ("type" not in said and found != "INVALID_JSON")


@given(st.text() | st.binary())
def test_any_text_is_a_request_or_an_error(text: str | bytes) -> None:
    assert outcome(text) in CODES


@given(st.text(alphabet='{}[]":,typesubcrib0123 \\\n', max_size=40))
def test_any_text_that_looks_like_json_is_a_request_or_an_error(text: str) -> None:
    assert outcome(text) in CODES


def test_keys_that_nobody_knows_are_overlooked() -> None:
    assert read_request('{"x":1,"type":"ping","topic":5}') == Ping()


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("", "either topic or filter is needed"),
        (',"topic":"a","filter":"a"', "either topic or filter, not both"),
    ],
)
@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
def test_a_request_names_a_topic_or_a_filter(kind: str, names: str, text: str) -> None:
    with pytest.raises(BadMessage) as refused:
        read_request(f'{{"type":"{kind}"{names}}}')
    assert refused.value.details is not None
    assert [error["msg"] for error in refused.value.details["errors"]] == [text]


@pytest.mark.parametrize("said", ["5", "null", '{"a":1}', "[]"])
def test_a_type_that_is_no_text_is_told_as_it_was_written(said: str) -> None:
    with pytest.raises(BadMessage, match=r"^Unknown message type: ") as refused:
        read_request(f'{{"type":{said}}}')
    assert str(refused.value).endswith(said)


@pytest.mark.parametrize(
    "message", ['{"type":"dance","x":%s}', '{"type":%s}', '{"type":"ping","request_id":%s}']
)
def test_what_is_refused_is_not_built_first(message: str) -> None:
    text = message % f"[{','.join(['[]'] * 100_000)}]"
    tracemalloc.start()
    try:
        assert outcome(text) in ("UNKNOWN_MESSAGE_TYPE", "VALIDATION_ERROR")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * len(text)


def every_error() -> list[type[PenstockError]]:
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, PenstockError)]


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.code)
def test_every_error_of_the_catalogue_has_a_code_of_its_own(error: type[PenstockError]) -> None:
    code = code_of(error("why"))
    assert code == code.upper()
    assert "-" not in code
    assert [each for each in every_error() if code_of(each("")) == code] == [error]


def test_every_ending_has_a_close_code() -> None:
    assert set(ENDINGS) == set(Ending)
