"""Fixtures of the tests of the whole server."""

from tests.support.logging import logging_put_back

__all__ = ["logging_put_back"]
