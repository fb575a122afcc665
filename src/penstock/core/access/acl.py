"""The access list: which topics a client may publish to and read.

There are no rules that forbid: nothing is allowed that none of the rules allows. Names are compared as they
are written; two that merely look the same are two.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from penstock.common.topics import SHARE_PREFIX, TopicLimits, check_filter
from penstock.core.access.files import Line, read_lines
from penstock.core.access.identity import EVERY_USER, Identity, is_user_name
from penstock.errors import InvalidFilter

_ANY_LENGTH = TopicLimits(max_bytes=65535, max_levels=65535)
_PLACEHOLDER = re.compile("(%[uc])")
_COMMENT = re.compile(r"(?<=\S)\s+#.*")  # no valid filter holds a blank before its #


class Rule(Struct, frozen=True):
    """One filter of the access list, cut at its placeholders."""

    parts: tuple[str, ...]

    def filter_for(self, identity: Identity) -> str | None:
        """Put the client's names in; None where they would make the rule mean something else."""
        if len(self.parts) == 1:
            return self.parts[0]
        names = {"%u": identity.user or "", "%c": identity.client_id}
        if not all(is_level(names[part]) for part in self.parts if part in names):
            return None
        filter = "".join(names.get(part, part) for part in self.parts)
        if filter.startswith("$") and not self.parts[0].startswith("$"):
            return None  # a client that calls itself $SYS does not own $SYS
        return filter


class Grants(Struct):
    """The rules for one kind of action, by user name; None holds those of the anonymous."""

    rules: dict[str | None, list[Rule]] = field(default_factory=dict)

    def filters_for(self, identity: Identity) -> Iterator[str]:
        """The filters of the rules that apply to this client."""
        holders = (None,) if identity.user is None else (identity.user, EVERY_USER)
        for holder in holders:
            for rule in self.rules.get(holder, ()):
                filter = rule.filter_for(identity)
                if filter is not None:
                    yield filter


class Acl(Struct):
    """The access list."""

    publish: Grants = field(default_factory=Grants)
    subscribe: Grants = field(default_factory=Grants)


def is_level(name: str) -> bool:
    """Return whether a name can stand in a filter as one literal level."""
    return bool(name) and not set(name) & {*"/+#\0"}


def read_acl(file: Path, *, has_users: bool) -> Acl:
    """Read sections of rules, each below the line that says whose they are."""
    acl = Acl()
    targets = {"publish": (acl.publish,), "subscribe": (acl.subscribe,), "both": (acl.publish, acl.subscribe)}
    holder: str | None = ""  # none yet
    for line in read_lines(file):
        word, *rest = line.text.split(maxsplit=1)
        argument = _COMMENT.sub("", rest[0]) if rest else ""
        if word in targets:
            if holder == "":
                raise line.error("a rule stands below a line `user <name>`, `user *` or `anonymous`")
            rule = _rule(line, argument, holder)
            for grants in targets[word]:
                grants.rules.setdefault(holder, []).append(rule)
        elif word == "user":
            holder = _holder(line, argument, has_users)
        elif word == "anonymous" and (not argument or argument.startswith("#")):
            holder = None
        else:
            raise line.error(
                "expected `user`, `publish`, `subscribe` or `both` with a word, or `anonymous` alone"
            )
    return acl


def _holder(line: Line, name: str, has_users: bool) -> str:
    if name != EVERY_USER and not is_user_name(name):
        raise line.error("`user` is followed by a name, or by * for every user")
    if not has_users:
        raise line.error("rules for users need a password file: without one everyone is anonymous")
    return name


def _rule(line: Line, filter: str, holder: str | None) -> Rule:
    try:
        check_filter(filter, _ANY_LENGTH)
    except InvalidFilter as error:
        raise line.error(str(error)) from error
    if filter.startswith(SHARE_PREFIX):
        raise line.error("rules are about topics: shared subscriptions need what plain ones need")
    if holder is None and "%u" in filter:
        raise line.error("%u stands for the user name, and the anonymous have none")
    _check_placeholders(line, filter)
    return Rule(tuple(_PLACEHOLDER.split(filter)))


def _check_placeholders(line: Line, filter: str) -> None:
    """Refuse rules whose meaning a client could choose with its name."""
    for number, level in enumerate(filter.split("/")):
        count = len(_PLACEHOLDER.findall(level))
        if count > 1:  # bob with the client id "by" would have what bobb has with "y"
            raise line.error(
                "%u and %c need a / between them: two names in one level cannot be distinguished"
            )
        if count and not number and level.startswith("$"):
            raise line.error("$ topics are named in full: with a placeholder a client would choose which")
