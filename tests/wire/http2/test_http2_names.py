"""What the HTTP/2 codec offers to the rest of the house."""

from types import ModuleType

from penstock.wire import http2
from penstock.wire.http2 import errors, events


def test_the_public_names_are_exactly_those_listed() -> None:
    public = {
        name
        for name, value in vars(http2).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(http2.__all__)
    assert len(http2.__all__) == len(set(http2.__all__))


def test_every_event_and_every_error_is_public_and_explained() -> None:
    for module in (events, errors):
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == module.__name__:
                assert name in http2.__all__
                assert value.__dict__.get("__doc__"), name
