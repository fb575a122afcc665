"""Router: filter index that finds the audience of a topic.

Exact filters are one look-up; wildcards are a trie walked level by level without recursion. The cost grows
with the depth of the topic and the number of matching filters, not with the number of filters. Results are
cached in the topic. A new or removed wildcard filter enters a short list of changes, and a topic is
matched again only if one of them concerns it.
"""

from collections import deque
from weakref import WeakValueDictionary

from penstock.common.topics import is_wildcard, matches, split_share
from penstock.core.delivery.policy import Limits
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import NOBODY, Audience, Group
from penstock.core.subscriptions.shared import SharedGroup
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import STALE, Topic

AnyGroup = Group[Session] | SharedGroup[Session]
_CHANGES_REMEMBERED = 4
"""To look at more changes than this takes longer than to match again."""


class Level:
    """One level of the wildcard tree."""

    __slots__ = ("children", "groups", "tail_groups")

    def __init__(self) -> None:
        self.children: dict[str, Level] = {}
        self.groups: dict[str, AnyGroup] = {}
        self.tail_groups: dict[str, AnyGroup] = {}  # of filters that end here with `/#`

    @property
    def is_bare(self) -> bool:
        return not (self.children or self.groups or self.tail_groups)


class Router:
    """Finds the subscribers of each topic: groups by name, and a tree of groups with wildcards."""

    def __init__(self, topics: Registry, offline_limits: Limits) -> None:
        self.version = 0
        self._topics = topics
        self.offline_limits = offline_limits
        self._exact: dict[str, Group[Session]] = {}
        self._root = Level()
        self._changes: deque[tuple[int, str]] = deque(maxlen=_CHANGES_REMEMBERED)
        self._audiences: WeakValueDictionary[tuple[AnyGroup, ...], Audience[Session]] = WeakValueDictionary()
        self.filters = 0  # different ones

    def names(self) -> list[str]:
        """Return the topics that are subscribed to by name, used or not."""
        return list(self._exact)

    def open_group(self, filter: str) -> AnyGroup:
        """The group of a filter, made if it is new."""
        group = self.find_group(filter)
        if group is None:
            group = self._add_group(filter)
            self.filters += 1
            self._note_change(group)
        return group

    def _add_group(self, filter: str) -> AnyGroup:
        share, inner = split_share(filter)
        if share is None and not is_wildcard(filter):
            exact: Group[Session] = Group(filter)
            self._exact[filter] = exact
            return exact
        node, groups = self._root, self._root.groups
        for level in inner.split("/"):
            if level == "#":
                groups = node.tail_groups
                break
            node = node.children.setdefault(level, Level())
            groups = node.groups
        group = groups[filter] = (
            Group(filter) if share is None else SharedGroup(filter, inner, self.offline_limits)
        )
        return group

    def find_group(self, filter: str) -> AnyGroup | None:
        """Return the group of a filter; None if it has no subscriber."""
        share, inner = split_share(filter)
        if share is None and not is_wildcard(filter):
            return self._exact.get(filter)
        node: Level | None = self._root
        for level in inner.split("/"):
            if level == "#" and node is not None:
                return node.tail_groups.get(filter)
            node = None if node is None else node.children.get(level)
        return None if node is None else node.groups.get(filter)

    def close_group(self, filter: str) -> None:
        """Remove the group of a filter without subscribers."""
        group = self.find_group(filter)
        if group is None:
            return
        if self._exact.get(filter) is group:
            del self._exact[filter]
        else:
            self._remove(filter, split_share(filter)[1].split("/"))
        self.filters -= 1
        self._note_change(group)

    def _remove(self, filter: str, levels: list[str]) -> None:
        """Take a group out of the tree, and the nodes that lead to nothing else."""
        has_tail = levels[-1] == "#"
        if has_tail:
            levels.pop()
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        del (path[-1].tail_groups if has_tail else path[-1].groups)[filter]
        while levels and path[-1].is_bare:
            path.pop()
            del path[-1].children[levels.pop()]

    def find_audience(self, name: str) -> Audience[Session]:
        """Return the audience of a topic, known or not."""
        topic = self._topics.get(name)
        if topic is None:
            return self._intern(self.match(name))
        if topic.version != self.version:
            self.refresh(topic)
        return topic.audience

    def refresh(self, topic: Topic) -> None:
        """Bring a topic's audience up to date."""
        if topic.version == STALE or not self._is_untouched(topic):
            topic.audience = self._intern(self.match(topic.name))
        topic.version = self.version

    def match(self, topic: str) -> list[AnyGroup]:
        """The groups whose filter matches a topic."""
        exact = self._exact.get(topic)
        found: list[AnyGroup] = [] if exact is None else [exact]
        nodes, is_reserved = [self._root], topic.startswith("$")
        for level in topic.split("/"):
            deeper: list[Level] = []
            for node in nodes:  # very many, where filters overlap
                children = node.children
                if level in children:
                    deeper.append(children[level])
                if not is_reserved:  # MQTT-4.7.2-1: wildcards do not match a leading `$`
                    if node.tail_groups:
                        found += node.tail_groups.values()
                    if "+" in children:
                        deeper.append(children["+"])
            is_reserved = False
            nodes = deeper
            if not nodes:
                return found
        for node in nodes:
            found += node.groups.values()
            if node.tail_groups:
                found += node.tail_groups.values()  # `a/#` matches `a`
        return found

    def _is_untouched(self, topic: Topic) -> bool:
        """No filter that came or went since the topic last looked concerns it."""
        if not self._changes or topic.version < self._changes[0][0] - 1:
            return False
        for version, filter in reversed(self._changes):
            if version <= topic.version:
                break
            if matches(filter, topic.name):
                return False
        return True

    def _intern(self, groups: list[AnyGroup]) -> Audience[Session]:
        if not groups:
            return NOBODY
        key = tuple(groups)
        audience = self._audiences.get(key)
        if audience is None:
            plain = tuple([group for group in groups if isinstance(group, Group)])
            is_shared = len(plain) < len(groups)
            shared = tuple([group for group in groups if isinstance(group, SharedGroup)]) if is_shared else ()
            audience = self._audiences[key] = Audience(plain, shared)
        return audience

    def _note_change(self, group: AnyGroup) -> None:
        filter = group.inner if isinstance(group, SharedGroup) else group.filter
        if is_wildcard(filter):
            self.version += 1
            self._changes.append((self.version, filter))
        elif (topic := self._topics.get(filter)) is not None:
            topic.version = STALE
