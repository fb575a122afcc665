"""Errors as Spark gets them."""

import traceback

import pytest

from penstock.pipeline.source import InvalidOption, PenstockSource


def test_an_error_comes_without_the_way_it_took() -> None:
    source = PenstockSource({"startingOffsets": "yesterday"})
    with pytest.raises(InvalidOption) as caught:
        source.schema()
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2  # whoever called, and whoever told
    assert caught.value.__suppress_context__
