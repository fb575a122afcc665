"""The `penstock` command: finds the module of a sub-command and hands over.

Only the module that was asked for is imported, so that `penstock serve` starts without the clients and
`penstock pub` without the server. The overview (`penstock --help`) imports them all, for their summaries.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import typer

__all__ = ["COMMANDS", "build", "main"]

COMMANDS = {
    "serve": "penstock.cli.serve:serve",
    "pub": "penstock.cli.pub:pub",
    "sub": "penstock.cli.sub:sub",
    "topics": "penstock.cli.topics:topics",
    "clients": "penstock.cli.clients:clients",
    "slow": "penstock.cli.slow:slow",
    "why": "penstock.cli.why:why",
    "health": "penstock.cli.health:health",
    "config": "penstock.cli.config:app",
    "passwd": "penstock.cli.passwd:passwd",
    "log": "penstock.cli.log:app",
    "pipeline": "penstock.cli.pipeline:app",
    "bench": "penstock.cli.bench:bench",
}
"""Where each sub-command lives: a function, or an app with sub-commands of its own."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; ends the process with 0, 1 for an error, or 2 for wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--version"]:
        print(f"penstock {__version__}")
        return
    names = words[:1] if words and words[0] in COMMANDS else list(COMMANDS)
    try:
        build(names)(args=words, prog_name="penstock")
    except PenstockError as error:
        print(f"error: {' '.join(str(error).split()) or error.code}", file=sys.stderr)
        sys.exit(1)


def build(names: Iterable[str]) -> "typer.Typer":
    """An app with the sub-commands of these names."""
    import typer  # noqa: PLC0415 - `penstock --version` need not wait for it

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    @app.callback()
    def overview(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
        """One topic space, several front doors, and nothing lost silently."""

    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app
