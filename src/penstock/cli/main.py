"""Entry point of the `penstock` command: imports the module of a sub-command, runs it, and exits.

Only the requested module is imported, so that `penstock serve` starts without the clients and `penstock pub`
without the server. The overview (`penstock --help`) imports them all, for their summaries. typer is imported
inside functions: `penstock --version` does not need it.

Wrong usage is one line on standard error, as every other error. Standard output is UTF-8 in every locale,
because `sub` and JSON need it. A reader that closes the pipe is not an error.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.build import build_text
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import typer

COMMANDS = {
    "serve": "penstock.cli.commands.serve:serve",
    "pub": "penstock.cli.commands.pub:pub",
    "sub": "penstock.cli.commands.sub:sub",
    "topics": "penstock.cli.commands.inspect:topics",
    "clients": "penstock.cli.commands.inspect:clients",
    "slow": "penstock.cli.commands.inspect:slow",
    "why": "penstock.cli.commands.inspect:why",
    "top": "penstock.cli.commands.top:top",
    "dashboard": "penstock.cli.commands.dashboard:dashboard",
    "health": "penstock.cli.commands.inspect:health",
    "config": "penstock.cli.commands.config:app",
    "reload": "penstock.cli.commands.config:reload",
    "acl": "penstock.cli.commands.acl:app",
    "passwd": "penstock.cli.commands.passwd:passwd",
    "log": "penstock.cli.log:app",
    "pipeline": "penstock.cli.pipeline:app",
    "bench": "penstock.cli.commands.bench:app",
    "demo": "penstock.cli.commands.demo:demo",
}
"""Module and attribute of each sub-command: a function, or an app with sub-commands of its own."""

PANELS = {
    "Run": ("serve", "dashboard", "demo"),
    "Talk": ("pub", "sub"),
    "Look at a server": ("topics", "clients", "slow", "why", "top", "health"),
    "Set up": ("config", "reload", "acl", "passwd"),
    "Log and lake": ("log", "pipeline"),
    "Measure": ("bench",),
}
"""Groups of the overview."""

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
    "reload": ("penstock reload", "penstock reload --address https://far.example --user admin"),
    "why": ("penstock why --reason outbox-full", "penstock why sensors/hall-1/heat 42 --client pump-7"),
    "top": ("penstock top", "penstock top --once -o json | jq .published_per_s"),
}
"""Examples at the end of a command's help."""

COMPLETION_VARIABLE = "_PENSTOCK_COMPLETE"
"""Set by the shell when it requests a completion."""
COMPLETION_LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Variables with the command line: bash sets the first, other shells the second."""
_NOISE = re.compile(r"^Invalid value: |(?<=: )Value error, ")
"""Prefixes of typer before texts that are complete without them."""
_PHRASES = (
    (re.compile(r"Input should be a valid integer.*"), "expected a whole number"),
    (re.compile(r"Input should be a valid number.*"), "expected a number"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"expected at least \1"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"expected at most \1"),
)
"""Texts of typer about numbers, in the words of all other errors."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; exits with 0, 1 for an error, or 2 for wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--version"]:
        print(f"penstock {__version__} ({build_text()})")
        return
    names = commands_to_complete(os.environ, COMMANDS)
    if names is None:
        names = words[:1] if words and words[0] in COMMANDS else list(COMMANDS)
    try:
        sys.exit(_run(build(names), words))
    except PenstockError as error:
        print(f"error: {' '.join(str(error).split()) or error.code}", file=sys.stderr)
        sys.exit(1)


def build(names: Iterable[str]) -> "typer.Typer":
    """Make an app with the sub-commands of these names."""
    import typer  # noqa: PLC0415 - `penstock --version` does not need it

    app = typer.Typer(
        cls=_overview_group(),
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


def commands_to_complete(environment: Mapping[str, str], commands: Iterable[str]) -> list[str] | None:
    """The commands to import for a shell completion; None if none is requested."""
    if COMPLETION_VARIABLE not in environment:
        return None
    line = next((environment[name] for name in COMPLETION_LINES if name in environment), "")
    words = line.split()[1:]
    if len(words) > 1 and words[0] in commands:
        return words[:1]
    return [name for name in commands if name.startswith("".join(words[:1]))] or list(commands)


def _overview_group() -> "type[typer.core.TyperGroup]":
    import typer  # noqa: PLC0415 - `penstock --version` does not need it
    from typer.core import TyperGroup  # noqa: PLC0415

    from penstock.cli.help import tidy  # noqa: PLC0415
    from penstock.cli.output import discard_stdout  # noqa: PLC0415

    class Overview(TyperGroup):
        """All commands in one order; typer would put those with sub-commands last."""

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            tidy(self)

        def list_commands(self, ctx: Any) -> list[str]:
            names = super().list_commands(ctx)
            return sorted(names, key=[*COMMANDS, *names].index)

        def invoke(self, ctx: Any) -> Any:
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
            except BrokenPipeError:
                discard_stdout()
                raise typer.Exit(0) from None
            return result

    return Overview


def _epilog_of(name: str) -> str | None:
    """The examples of a command; typer shows empty lines as line ends."""
    return "\n\n".join(("Examples:", *EXAMPLES[name])) if name in EXAMPLES else None


def _run(app: "typer.Typer", words: Sequence[str]) -> int:
    """Run a command line, and return the exit code."""
    import typer  # noqa: PLC0415 - `penstock --version` does not need it

    from penstock.cli.output import INTERRUPTED, discard_stdout  # noqa: PLC0415

    usage_error: Any = typer.BadParameter.__base__  # typer exports only this subclass of it
    _prepare_streams()
    try:
        _check_encoding(words)
        return app(args=words, prog_name="penstock", standalone_mode=False) or 0
    except typer.Abort:  # Ctrl-C at a prompt
        return INTERRUPTED
    except usage_error as error:
        if text := error.format_message():  # empty after the overview was shown
            command = error.ctx.command_path if error.ctx else "penstock"
            print(f"error: {_usage_text(_plain_text(text, error), command)}", file=sys.stderr)
        return int(error.exit_code)
    except OSError as error:  # a full disk, for example
        parts = filter(None, (error.filename, error.strerror))
        print(f"error: {': '.join(map(str, parts))}", file=sys.stderr)
        discard_stdout()
        return 1


def _prepare_streams() -> None:
    """Make standard output and error writable in every environment."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _check_encoding(words: Sequence[str]) -> None:
    import typer  # noqa: PLC0415 - `penstock --version` does not need it

    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"{word!a} is not UTF-8; pub takes any bytes with --file") from None


def _plain_text(text: str, error: Exception) -> str:
    """The text of a usage error; one about a number names what was expected and the value."""
    for pattern, phrase in _PHRASES:
        plain, is_found = pattern.subn(phrase, text)
        if is_found:
            faults: list[Any] = getattr(error.__cause__, "errors", list)()
            return f"{plain}, got {faults[0]['input']!r}" if faults else plain
    return text


def _usage_text(text: str, command: str) -> str:
    """A usage error in one line, with the command that shows the help."""
    words = " ".join(_NOISE.sub("", text).split())
    end = "" if words.endswith((".", "?")) else "."
    return f"{words[:1].lower()}{words[1:]}{end} See {command} --help."
