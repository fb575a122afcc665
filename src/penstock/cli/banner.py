"""What a person sees first when a server starts: where it is, and what to try."""

import shlex
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cli.places import OWN_PORTS
from penstock.cli.program import program

if TYPE_CHECKING:
    from penstock.app import Server

INDENT = " " * 2
NAMED = 10
"""How wide the column of names is."""


def banner(server: "Server", dashboard: str | None = None) -> str:
    """The doors with their addresses, and commands to copy.

    Args:
        dashboard: where the dashboard is, if there is one.
    """
    places = [*_doors(server), *_pages(server), *_storage(server)]
    places += [("dashboard", dashboard)] if dashboard else []
    return "\n".join(
        [
            f"Penstock {__version__} - node {server.node_id}",
            *(f"{INDENT}{name:<{NAMED}} {place}" for name, place in places),
            *_examples(server),
            "Ctrl-C stops it.",
        ]
    )


def _doors(server: "Server") -> list[tuple[str, str]]:
    return [(door.name, address) for door in server.doors for address in door.addresses()]


def _pages(server: "Server") -> list[tuple[str, str]]:
    """What else is at the HTTP port: the first address that is not that of the admin port."""
    settings, addresses = server.settings.http, server.http.addresses()
    if not addresses or not (settings.port or settings.tls_port is not None):
        return []
    first = addresses[0]
    return [("web", first.replace("http", "ws", 1) + "/ws"), ("streams", f"{first}/api/v1/streams")]


def _storage(server: "Server") -> list[tuple[str, str]]:
    settings = server.settings
    return [] if settings.data_dir is None else [("log", f"{settings.data_dir} ({settings.durability})")]


def _examples(server: "Server") -> list[str]:
    """Three commands that work as they are, but for a user's name and password."""
    commands = [*_messages(server), *_looks(server)]
    if not commands:
        return []
    words = "Try, in other terminals:" if len(commands) > 1 else "Try:"
    return [words, *(f"{INDENT}{program()} {command}" for command in commands)]


def _messages(server: "Server") -> list[str]:
    """Listen, and publish."""
    port = server.mqtt.port
    if port is None:
        return []
    where = _where(server.settings.host, port, OWN_PORTS["mqtt"]) + _who(server)
    return [f"sub{where} 'hello/#' -v", f"pub{where} hello/world 'first light'"]


def _looks(server: "Server") -> list[str]:
    """Look at what happens, at a port that speaks plain HTTP."""
    ports = server.http.ports()
    if not ports:
        return []
    # The admin port, which is the last of them, is the one that tells, if there is one.
    port = ports[0] if server.settings.http.admin_port is None else ports[-1]
    return [f"top{_where(server.settings.host, port, OWN_PORTS['http'])}{_who(server)}"]


def _where(host: str, port: int, usual: int) -> str:
    """The flags that lead there; whoever listens everywhere is also here."""
    is_here = host in ("127.0.0.1", "localhost", "0.0.0.0", "::")
    flags = "" if is_here else f" --host {shlex.quote(host)}"
    return flags + ("" if port == usual else f" --port {port}")


def _who(server: "Server") -> str:
    return " --user NAME --password-file FILE" if server.settings.access.wants_passwords else ""
