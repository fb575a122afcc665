"""`penstock acl`: try the rights of a user without a server, as the files give them."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.commands.config import SourceFlags
from penstock.cli.flags import spread
from penstock.cli.output import Output, OutputOption, print_facts
from penstock.common.topics import check_filter, check_topic, split_share
from penstock.config.settings import access_sources
from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity, is_user_name
from penstock.errors import InvalidConfig, InvalidFilter, InvalidTopic

ANONYMOUS = "-"
"""Stands for a client without a user name."""
ACTIONS = ("publish", "subscribe")

app = typer.Typer(help="Try the rights that an access list gives.", no_args_is_help=True)


@app.callback()
def acl() -> None:
    """Try the rights that an access list gives."""


@app.command("test")
@spread
def test(
    user: Annotated[
        str, typer.Argument(metavar="USER", help="Name of the user; - is a client without a name.")
    ],
    action: Annotated[str, typer.Argument(metavar="ACTION", help="publish or subscribe.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic, or filter to subscribe to.")],
    *,
    acl_file: Annotated[
        Path | None,
        typer.Option("--acl-file", metavar="FILE", help="Access list, in place of that of the settings."),
    ] = None,
    client_id: Annotated[
        str, typer.Option("--client-id", metavar="NAME", help="Client id, for rules with %c.")
    ] = "",
    sources: SourceFlags,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check whether a user may publish to a topic or subscribe to a filter; ends with 1 if not.

    The access list is that of the settings, or --acl-file. No server is needed.
    """
    if action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is not an action; write publish or subscribe")
    if user != ANONYMOUS and not is_user_name(user):
        raise typer.BadParameter(f"{user!r} cannot be a user name")
    access = _load(sources, acl_file)
    identity = _identity(access, None if user == ANONYMOUS else user, client_id)
    if not access.is_known(identity):
        is_allowed, reason = False, _unknown(identity)
    else:
        is_allowed = _is_allowed(access, identity, action, topic, sources)
        reason = "a rule allows it" if is_allowed else "no rule allows it"
        reason = reason if access.sources.acl_file else "there is no access list"
    if output is Output.JSON:
        facts = {"user": identity.user, "action": action, "topic": topic, "allowed": is_allowed}
        print_facts(facts | {"reason": reason}, output)
    else:
        print(f"{'allowed' if is_allowed else 'refused'}: {reason}")
    if not is_allowed:
        raise typer.Exit(1)


def _load(sources: SourceFlags, acl_file: Path | None) -> FileAccess:
    """Users and rights of the settings, or those of an access list alone."""
    if acl_file is not None:
        return FileAccess.load(None, acl_file, allow_anonymous=True, has_certificates=True)
    return FileAccess(access_sources(sources.load().settings))


def _identity(access: FileAccess, user: str | None, client_id: str) -> Identity:
    """The client: one with a name of the password file, or if there can be any, of a certificate."""
    identity = Identity(user, client_id)
    if user is None or access.is_known(identity) or not access.sources.has_certificates:
        return identity
    return Identity(user, client_id, is_certified=True)


def _unknown(identity: Identity) -> str:
    if identity.user is None:
        return "clients without a user name cannot connect"
    return f"user {identity.user!r} is not in the password file"


def _is_allowed(
    access: FileAccess, identity: Identity, action: str, topic: str, sources: SourceFlags
) -> bool:
    try:
        limits = sources.load().settings.topic
        if action == "publish":
            check_topic(topic, limits)
            return access.may_publish(identity, topic)
        check_filter(topic, limits)
    except (InvalidTopic, InvalidFilter) as error:
        raise InvalidConfig(str(error)) from None
    return access.may_subscribe(identity, split_share(topic)[1])
