"""Audience of a topic: groups of subscribers, one group per filter.

Joining and leaving change a group in place and invalidate nothing. Members of a group are in classes by
encoding: a class gets identical bytes, encoded once. A session in several groups of an audience gets one
copy, in an encoding merged from all of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Generic

from penstock.core.ports.connection import Encoding
from penstock.core.subscriptions.shared import MemberT, SharedGroup
from penstock.core.subscriptions.subscription import Subscription

Members = Mapping[MemberT, Subscription]


class Others(Mapping[MemberT, Subscription]):
    """The members of a class without some: a view, so that a large group is never copied."""

    __slots__ = ("_members", "_without")

    def __init__(self, members: Members[MemberT], without: Mapping[MemberT, object]) -> None:
        self._members = members
        self._without = without

    def __iter__(self) -> Iterator[MemberT]:
        without = self._without
        return (session for session in self._members if session not in without)

    def __getitem__(self, session: MemberT) -> Subscription:
        return self._members[session]

    def __len__(self) -> int:
        return len(self._members) - sum(session in self._members for session in self._without)


class Group(Generic[MemberT]):
    """The subscribers of one filter, in classes."""

    __slots__ = ("_members", "classes", "filter", "version")

    def __init__(self, filter: str) -> None:
        self.filter = filter
        self._members = 0
        self.classes: dict[Encoding, dict[MemberT, Subscription]] = {}
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self.classes)

    def __len__(self) -> int:
        return self._members

    def join(self, session: MemberT, subscription: Subscription) -> None:
        """Add a member to the class of its encoding."""
        members = self.classes.get(subscription.encoding)
        if members is None:
            members = self.classes[subscription.encoding] = {}
        self._members += session not in members
        members[session] = subscription
        self.version += 1

    def leave(self, session: MemberT, subscription: Subscription) -> None:
        """Remove a member; no other member is looked at."""
        members = self.classes[subscription.encoding]
        del members[session]
        self._members -= 1
        if not members:
            del self.classes[subscription.encoding]
        self.version += 1


class Audience(Generic[MemberT]):
    """The groups that a topic reaches. Interned: equal tuples of groups are one audience."""

    __slots__ = ("__weakref__", "_table", "_version", "groups", "shared")

    def __init__(self, groups: tuple[Group[MemberT], ...], shared: tuple[SharedGroup[MemberT], ...]) -> None:
        self.groups = groups
        self.shared = shared
        self._table: list[tuple[Encoding, Members[MemberT]]] = []
        self._version = -1

    def __bool__(self) -> bool:
        return bool(self.groups or self.shared)

    def __len__(self) -> int:
        """Number of subscribers, offline ones included; a shared group counts as one."""
        if len(self.groups) == 1 and not self.shared:
            return len(self.groups[0])
        direct = sum(len(members) for _, members in self.classes())
        return direct + sum(1 for group in self.shared if group)

    @property
    def width(self) -> int:
        """Number of memberships in all groups: a session with several of the filters counts again."""
        return sum(map(_size_of, self.groups))

    def classes(self) -> Iterable[tuple[Encoding, Members[MemberT]]]:
        """Iterate over encodings with their members; no session twice."""
        groups = self.groups
        if len(groups) == 1:
            return groups[0].classes.items()
        version = sum([group.version for group in groups])
        if version != self._version:
            self._table = self._build()
            self._version = version
        return self._table

    def reaches(self, session: MemberT) -> bool:
        """Return whether a session has one of the filters, shared ones included."""
        subscriptions = session.subscriptions
        return any(group.filter in subscriptions for group in self.groups) or any(
            group.filter in subscriptions for group in self.shared
        )

    @property
    def wants_storing(self) -> bool:
        """A subscriber gets QoS 1 or 2 messages even after an interruption, so they have to be stored."""
        for encoding, _ in self.classes():  # a loop, because it is asked for each stored message
            if encoding.qos:
                return True
        return bool(self.shared) and any(group.queues_offline for group in self.shared)

    @property
    def has_cursors(self) -> bool:
        """A subscriber may resume by the cursor of its last message."""
        direct = any(encoding.has_cursor for encoding, _ in self.classes())
        return direct or any(group.has_cursors for group in self.shared)

    def _build(self) -> list[tuple[Encoding, Members[MemberT]]]:
        """Merge the classes of all groups. The cost grows with the members of all groups but the largest."""
        overlapping = self._find_overlapping()
        if not overlapping:
            return [pair for group in self.groups for pair in group.classes.items()]
        table: list[tuple[Encoding, Members[MemberT]]] = []
        for group in self.groups:
            for encoding, members in group.classes.items():
                if len(members) == 1 and next(iter(members)) in overlapping:
                    continue  # as nearly all, where one session has very many filters
                merged_here = _count_common(members, overlapping)
                if merged_here < len(members):
                    table.append((encoding, Others(members, overlapping) if merged_here else members))
        merged: dict[Encoding, dict[MemberT, Subscription]] = {}
        for session, mine in overlapping.items():
            first, *rest = [subscription.encoding for subscription in mine]
            merged.setdefault(first.merge(*rest), {})[session] = max(mine, key=_qos_of)
        return [*table, *merged.items()]

    def _find_overlapping(self) -> dict[MemberT, list[Subscription]]:
        """Sessions in more than one group, with their subscriptions in the order of the groups.

        The largest group is not walked.
        """
        largest = max(self.groups, key=_size_of, default=None)
        found: dict[MemberT, list[Subscription]] = {}
        for group in self.groups:
            for members in group.classes.values() if group is not largest else ():
                for session, subscription in members.items():
                    if session in found:
                        found[session].append(subscription)
                    else:
                        found[session] = [subscription]
        if largest is not None:
            before = {group.filter for group in self.groups[: self.groups.index(largest)]}
            for session, mine in found.items():
                also = session.subscriptions.get(largest.filter)
                if also is not None:
                    mine.insert(sum([each.filter in before for each in mine]), also)
        return {session: mine for session, mine in found.items() if len(mine) > 1}


def _count_common(one: Mapping[MemberT, object], other: Mapping[MemberT, object]) -> int:
    """Return how many sessions two mappings have in common; the smaller one is walked."""
    few, many = (one, other) if len(one) < len(other) else (other, one)
    return sum([session in many for session in few])


_size_of = attrgetter("_members")  # quicker than `len`, for very many groups
_qos_of = attrgetter("encoding.qos")


NOBODY: Audience[Any] = Audience((), ())
