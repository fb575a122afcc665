"""Commands are shown as they can be copied."""

import sys

import pytest

from penstock.cli import program as module
from penstock.cli.program import program


@pytest.mark.parametrize(
    ("on_path", "called", "shown"),
    [
        ("/usr/bin/penstock", "/elsewhere/penstock", "penstock"),
        (None, "/my tools/penstock", "'/my tools/penstock'"),
        (None, "/site-packages/penstock/__main__.py", "'/my tools/python' -m penstock"),
    ],
)
def test_a_command_is_called_as_this_one_was(
    on_path: str | None, called: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "which", lambda _: on_path)
    monkeypatch.setattr(sys, "argv", [called])
    monkeypatch.setattr(sys, "executable", "/my tools/python")
    assert program() == shown
