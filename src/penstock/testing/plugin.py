"""Penstock for pytest: a server as a fixture.

pytest loads this with every run where Penstock is installed, so nothing is imported before a test needs it. A
test says by a marker what settings its server has, or overrides `penstock_settings` for all of them.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing import AsyncRunningServer, RunningServer
    from penstock.testing.base import BaseServer

MARKER = "penstock(**settings): settings of the server that `penstock_server` is, as in the settings file"
FIXTURES = ("penstock_server", "penstock_session_server")
EVENTS_SHOWN = 10


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def penstock_settings() -> Mapping[str, Any]:
    """The settings of every server of these fixtures; override it with those of your tests."""
    return {}


@pytest.fixture
def penstock_server(
    request: pytest.FixtureRequest, penstock_settings: Mapping[str, Any]
) -> "Iterator[RunningServer]":
    """A Penstock server of this test's own, in memory and on free ports."""
    from penstock.testing import server  # noqa: PLC0415

    with server(**_settings(request.node, penstock_settings)) as running:
        yield running


@pytest.fixture
def penstock_async_server(penstock_server: "RunningServer") -> "AsyncRunningServer":
    """The same for a test that is a coroutine."""
    return penstock_server.aio


@pytest.fixture(scope="session")
def penstock_session_server(penstock_settings: Mapping[str, Any]) -> "Iterator[RunningServer]":
    """A Penstock server that all tests of this process share: use topics of your own."""
    from penstock.testing import server  # noqa: PLC0415

    with server(**penstock_settings) as running:
        yield running


def _settings(item: pytest.Item, common: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings of a test's server: those of all, then markers, the nearest last."""
    settings = dict(common)
    for marker in reversed(list(item.iter_markers("penstock"))):
        if marker.args:
            raise pytest.UsageError("@pytest.mark.penstock takes settings by name, as mqtt={...}")
        for key, value in marker.kwargs.items():
            settings[key] = _add(settings.get(key), value)
    return settings


def _add(known: Any, value: Any) -> Any:
    """A section has the keys of both, any other value replaces what was known."""
    is_section = isinstance(known, Mapping) and isinstance(value, Mapping)
    return {**known, **value} if is_section else value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure what its server knows of it."""
    report = yield
    if report.when == "call" and report.failed:
        given = getattr(item, "funcargs", {})
        report.sections += [(name, _describe(given[name])) for name in FIXTURES if name in given]
    return report


def _describe(running: "BaseServer") -> str:
    """Describe a server: address, losses, log."""
    from penstock.testing.inspection import describe_drops  # noqa: PLC0415

    if not running.is_running:
        return "the server is not running"
    lines = [f"addresses: {' '.join(running.addresses)}"]
    try:
        rows = running.drops()
    except (RuntimeError, TimeoutError) as error:
        lines.append(f"it cannot be asked: {error}")
    else:
        lines.append(f"not delivered:\n{describe_drops(rows)}" if rows else "everything was delivered")
    logged = [event for event in running.events if event["level"] not in ("debug", "info")][-EVENTS_SHOWN:]
    return "\n".join([*lines, *map(_line, logged)])


def _line(event: Mapping[str, Any]) -> str:
    about = [f"{key}={value}" for key, value in event.items() if key not in ("level", "event")]
    return " ".join([f"{event['level']}: {event['event']}", *about])
