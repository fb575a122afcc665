"""Completion in the shell: which commands a line can be about, and names that a running server knows.

The server is the one that the command line names so far, or the one on this machine. It has half a second; if
it does not answer, or wants a password that nobody gave, nothing is completed and nothing is said.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.http import HttpServer

VARIABLE = "_PENSTOCK_COMPLETE"
"""Set by the shell when it wants to know how a line can go on."""
LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Where shells put the line: bash in the first, others in the second."""
MOST = 50
PAGE = 1_000
PATIENCE_S = 0.5


def commands_to_complete(environment: Mapping[str, str], commands: Iterable[str]) -> list[str] | None:
    """The commands that have to be known to complete a line; None if that is not what is wanted."""
    if VARIABLE not in environment:
        return None
    line = next((environment[name] for name in LINES if name in environment), "")
    words = line.split()[1:]
    if len(words) > 1 and words[0] in commands:
        return words[:1]
    return [name for name in commands if name.startswith("".join(words[:1]))] or list(commands)


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin with what is written."""
    return _names(context.params, "topics", "name", incomplete)


def complete_client(context: typer.Context, incomplete: str) -> list[str]:
    """Clients whose id begins with what is written."""
    return _names(context.params, "clients", "client_id", incomplete)


def _names(flags: Mapping[str, Any], kind: str, key: str, incomplete: str) -> list[str]:
    try:
        server = _server_of(flags)
        if server is None or (server.user and not (server.password or server.password_file)):
            return []
        with server.connect(server.place) as client:
            rows = client.get(f"/api/v1/{kind}", search=incomplete or None, limit=PAGE)[kind]
    except (PenstockError, typer.BadParameter):  # whoever presses a key wants no explanations
        return []
    names = (row[key] for row in rows)
    return [name for name in names if name.startswith(incomplete) and name.isprintable()][:MOST]


def _server_of(flags: Mapping[str, Any]) -> "HttpServer | None":
    """The server of a line as it is so far; None if it names another port, which is not the one to ask."""
    from penstock.cli.http import HttpServer  # noqa: PLC0415 - it may be that which asks

    if "mqtt_version" in flags and (flags.get("port") or flags.get("address") or flags.get("tls")):
        return None
    given = {name: flags[name] for name in HttpServer.__struct_fields__ if flags.get(name) is not None}
    return HttpServer(**{**given, "connect_timeout": PATIENCE_S})
