"""Fields of Protocol Buffers, as the library reads and writes them."""

from google.protobuf.internal.decoder import _DecodeVarint  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st

from penstock.runs import Run
from penstock.wire.sidecar.fields import payloads_of, varint, varints
from tests.wire.sidecar.made_runs import NUMBERS, made_runs


@given(st.integers(0, 2**64 - 1))
def test_a_number_is_read_as_it_was_in_as_few_bytes_as_possible(number: int) -> None:
    data = varint(number)
    assert _DecodeVarint(data, 0) == (number, len(data))
    assert len(data) == max(-(-number.bit_length() // 7), 1)


@given(st.integers(0, 300) | NUMBERS, st.integers(0, 400))
def test_numbers_that_follow_one_another_are_what_each_is_alone(first: int, count: int) -> None:
    assert varints(first, count) == [varint(first + index) for index in range(count)]


@given(made_runs())
def test_payloads_are_cut_out_where_the_run_says(run: Run) -> None:
    assert payloads_of(run) == [run.payload(index) for index in range(run.count)]
