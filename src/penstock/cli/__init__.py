"""The `penstock` command: finds the module of a sub-command and hands over.

Only the module that was asked for is imported, so that `penstock serve` starts without the clients and
`penstock pub` without the server. The overview (`penstock --help`) imports them all, for their summaries.
"""

import os
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
    "top": "penstock.cli.top:top",
    "dashboard": "penstock.cli.dashboard:dashboard",
    "health": "penstock.cli.health:health",
    "config": "penstock.cli.config:app",
    "passwd": "penstock.cli.passwd:passwd",
    "log": "penstock.cli.log:app",
    "pipeline": "penstock.cli.pipeline:app",
    "bench": "penstock.cli.bench:bench",
    "demo": "penstock.cli.demo:demo",
}
"""Where each sub-command lives: a function, or an app with sub-commands of its own."""

PANELS = {
    "Run": ("serve", "dashboard", "demo"),
    "Talk": ("pub", "sub"),
    "Look at a server": ("topics", "clients", "slow", "why", "top", "health"),
    "Set up": ("config", "passwd"),
    "Log and lake": ("log", "pipeline"),
    "Measure": ("bench",),
}
"""How the overview groups them."""


EXAMPLES = {
    "pub": (
        "penstock pub hello/world 'first light' -q 1",
        "seq 100 | penstock pub numbers --stdin-lines",
        "penstock pub hello/world hi --address wss://far.example --user ann",
    ),
    "sub": ("penstock sub 'hello/#' -v", "penstock sub sensors/+/heat -o json | jq .payload"),
    "topics": (
        "penstock topics --filter 'sensors/#'",
        "penstock topics sensors/hall-1/heat",
        "penstock topics --retained",
    ),
    "clients": ("penstock clients --connected", "penstock clients pump-7 --disconnect"),
    "why": ("penstock why --reason outbox-full", "penstock why sensors/hall-1/heat 42 --client pump-7"),
    "top": ("penstock top", "penstock top --once -o json | jq .published_per_s"),
}
"""What the help of a command ends with."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; ends the process with 0, 1 for an error, or 2 for wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--version"]:
        print(f"penstock {__version__}")
        return
    from penstock.cli.completing import commands_to_complete  # noqa: PLC0415 - the version need not wait for it

    names = commands_to_complete(os.environ, COMMANDS)
    if names is None:
        names = words[:1] if words and words[0] in COMMANDS else list(COMMANDS)
    app = build(names)
    from penstock.cli.usage import run  # noqa: PLC0415

    try:
        sys.exit(run(app, words))
    except PenstockError as error:
        print(f"error: {' '.join(str(error).split()) or error.code}", file=sys.stderr)
        sys.exit(1)


def build(names: Iterable[str]) -> "typer.Typer":
    """An app with the sub-commands of these names."""
    import typer  # noqa: PLC0415 - `penstock --version` need not wait for it

    from penstock.cli.usage import Overview  # noqa: PLC0415

    app = typer.Typer(
        cls=Overview,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )

    @app.callback()
    def overview(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
        """One topic space, several front doors, and nothing lost silently."""

    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        panel = next((title for title, members in PANELS.items() if name in members), None)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel, epilog=_epilog_of(name))(command)
    return app


def _epilog_of(name: str) -> str | None:
    """The examples of a command; empty lines keep them apart where they are shown."""
    return "\n\n".join(("Examples:", *EXAMPLES[name])) if name in EXAMPLES else None
