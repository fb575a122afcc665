"""MQTT's rules once more, as plainly as they can be written: what the server is compared with.

Nothing here is shared with the server. Matching goes level by level, with recursion; whether a rule covers
a filter is found by trying topics: one for each length that can make a difference, with a name that stands
in no rule wherever the filter leaves the choice.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

FRESH = "name that no rule holds"


def naive_matches(filter: str, topic: str) -> bool:
    """Whether a filter means a topic."""
    if topic[0] == "$" and filter[0] in "+#":
        return False
    return _same(filter.split("/"), topic.split("/"))


def _same(wanted: list[str], names: list[str]) -> bool:
    if wanted == ["#"]:
        return True
    if not names:
        return wanted == []
    if not wanted:
        return False
    if wanted[0] != "+" and wanted[0] != names[0]:
        return False
    if len(names) == 1 and wanted[1:] == ["#"]:
        return True  # `a/#` means `a` as well
    return _same(wanted[1:], names[1:])


def topics_of(filter: str, depth: int) -> Iterator[str]:
    """One topic of every length up to `depth` that the filter means."""
    *levels, last = filter.split("/")
    fixed = [FRESH if level == "+" else level for level in levels]
    if last != "#":
        yield from filter_empty(["/".join([*fixed, FRESH if last == "+" else last])])
        return
    for more in range(depth + 2):
        yield from filter_empty(["/".join([*fixed, *[FRESH] * more])])


def filter_empty(topics: Iterable[str]) -> Iterator[str]:
    """The empty name is no topic."""
    return (topic for topic in topics if topic)


def naive_covers(rule: str, filter: str) -> bool:
    """Whether a rule means every topic that the filter means."""
    return all(naive_matches(rule, topic) for topic in topics_of(filter, rule.count("/") + 1))


class Rights(Struct, frozen=True):
    """What the access list gives one user, written as filters in which %u and %c may stand."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def may_read(self, topic: str, user: str, client_id: str) -> bool:
        return any(naive_matches(rule, topic) for rule in filled(self.read, user, client_id))

    def may_write(self, topic: str, user: str, client_id: str) -> bool:
        if topic.startswith("$"):
            return False
        return any(naive_matches(rule, topic) for rule in filled(self.write, user, client_id))

    def may_subscribe(self, filter: str, user: str, client_id: str) -> bool:
        """Whether a single rule is enough for all that the filter, which is not a shared one, means."""
        return any(naive_covers(rule, filter) for rule in filled(self.read, user, client_id))

    def lines(self) -> Iterator[str]:
        """The same for an access list."""
        yield from (f"subscribe {rule}" for rule in self.read)
        yield from (f"publish {rule}" for rule in self.write)


def filled(rules: Iterable[str], user: str, client_id: str) -> Iterator[str]:
    """Rules with the names put in, without those that a name would turn into something else."""
    for rule in rules:
        names = [name for mark, name in (("%u", user), ("%c", client_id)) if mark in rule]
        if any(name == "" or "/" in name or "+" in name or "#" in name for name in names):
            continue
        first = {"%u": user, "%c": client_id}.get(rule[:2], "")
        if first.startswith("$"):
            continue
        levels = [_put(level, user, client_id) for level in rule.split("/")]
        yield "/".join(levels)


def _put(level: str, user: str, client_id: str) -> str:
    """Left to right, so that what was put in is not looked at again."""
    for at in range(len(level) - 1):
        if level[at : at + 2] in ("%u", "%c"):
            name = user if level[at + 1] == "u" else client_id
            return level[:at] + name + _put(level[at + 2 :], user, client_id)
    return level
