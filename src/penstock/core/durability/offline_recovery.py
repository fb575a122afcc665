"""Recovery of offline queues: one pass over the log from the lowest position fills all of them.

Messages are read by column, and go to the queues as offsets: no object is made for a single message. Runs are
made only where something has to be decided about each: shared groups, lifetimes, No Local, a queue that is
full.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from sys import maxsize

from msgspec import Struct

from penstock.common.topics import matches
from penstock.core.delivery.reencoding import PendingEncoding
from penstock.core.node import Node
from penstock.core.ports.connection import Encoding
from penstock.core.ports.log import Listing, Lost
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import Audience
from penstock.core.subscriptions.router import AnyGroup
from penstock.core.subscriptions.shared import SharedGroup
from penstock.core.subscriptions.subscription import Subscription
from penstock.runs import Run

MESSAGES_AT_ONCE = 100_000
"""Messages that are divided at once: a session with few of them costs as much as one with many."""
_since_of = attrgetter("since")


class Reader(Struct, frozen=True, eq=False):
    """Subscriber of a topic between two offsets, with encoding and subscription."""

    owner: Session | SharedGroup[Session]
    after: int
    encoding: Encoding
    wanted: Subscription
    until: int = maxsize
    is_plain: bool = False
    """A session that gets all messages of the topic, those of its own too."""


class Share:
    """Messages that have the same readers: rising offsets, and their sizes."""

    __slots__ = ("offsets", "readers", "sizes")

    def __init__(self, readers: Sequence[Reader]) -> None:
        self.readers = readers
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    def between(self, after: int, until: int) -> tuple[list[int], int]:
        """The offsets between two offsets, and the sum of their sizes."""
        offsets, sizes = self.offsets, self.sizes
        if after >= offsets[0] or offsets[-1] > until:
            start, stop = bisect_right(offsets, after), bisect_right(offsets, until)
            offsets, sizes = offsets[start:stop], sizes[start:stop]
        return offsets, sum(sizes)


class OfflineRecovery:
    """Fills the offline queues of sessions and shared groups.

    Args:
        positions: sessions that were behind; everything after this offset is queued.
        waiting: the same of shared groups.
    """

    def __init__(
        self, node: Node, positions: Mapping[Session, int], waiting: Mapping[SharedGroup[Session], int]
    ) -> None:
        self._node = node
        self._positions = positions
        self._waiting = waiting
        self._changed = [session for session in positions if session.past_subscriptions]
        self._readers: dict[str, Sequence[Reader]] = {}  # by topic
        self._present: dict[tuple[AnyGroup, ...], Sequence[Reader]] = {}  # by groups of an audience

    def restore(self) -> None:
        """Read the log once, and queue every message for its readers."""
        if not self._positions and not self._waiting:
            return
        first = min((*self._positions.values(), *self._waiting.values()))
        together: list[Listing] = []
        messages = 0
        for found in self._node.log.scan(first, self._is_wanted):
            if isinstance(found, Lost):
                self._note_lost(found)
                continue
            messages += len(found.offsets)
            if found.may_expire or messages > MESSAGES_AT_ONCE:
                self._queue(together)
                together, messages = [], len(found.offsets)
            if found.may_expire:
                self._queue_singly(found.runs(), None)
            else:
                together.append(found)
        self._queue(together)

    def _is_wanted(self, topic: str) -> bool:
        readers = self._readers[topic] = self._find_readers(topic)
        return bool(readers)

    def _note_lost(self, lost: Lost) -> None:
        """Record queued messages that cannot be read; part of them may have been delivered before."""
        for reader in self._readers[lost.topic]:
            if reader.after < lost.until:
                owner = reader.owner.client_id if isinstance(reader.owner, Session) else reader.owner.filter
                self._node.offline_fetch.note_damaged(owner, lost)

    # Readers of a topic

    def _find_readers(self, topic: str) -> Sequence[Reader]:
        """Return the sessions that are behind on a topic, each with its offset; equal for most topics.

        Past filters of a session come first: they have the lower offsets.
        """
        groups = tuple(self._node.router.match(topic))
        present = self._present.get(groups)
        if present is None:
            audience = self._node.router.find_audience(topic)
            present = self._present[groups] = tuple(self._find_present(audience))
        if not self._changed:
            return present
        starts = {reader.owner: reader.after for reader in present}
        former = [
            reader
            for session in self._changed
            for reader in _find_former(session, topic, self._positions[session], starts.get(session, maxsize))
        ]
        return (*former, *present) if former else present

    def _find_present(self, audience: Audience[Session]) -> Iterator[Reader]:
        positions, waiting = self._positions, self._waiting
        for encoding, members in audience.classes():
            for session in members if encoding.qos else ():
                if session in positions:
                    mine = (session.subscriptions.get(group.filter) for group in audience.groups)
                    since = min(each.since for each in mine if each is not None and each.options.qos)
                    after, is_plain = max(positions[session], since), not encoding.no_local
                    yield Reader(session, after, encoding, members[session], is_plain=is_plain)
        for group in audience.shared:
            if group in waiting:
                yield Reader(group, waiting[group], group.speaker.encoding, group.speaker)

    # Messages

    def _queue(self, listings: Sequence[Listing]) -> None:
        """Queue messages: as offsets where nothing has to be decided, otherwise one by one."""
        mine: dict[Session | SharedGroup[Session], list[tuple[Reader, Share]]] = {}
        for share in self._split(listings):
            for reader in share.readers:
                known = mine.get(reader.owner)
                if known is None:
                    mine[reader.owner] = [(reader, share)]
                else:
                    known.append((reader, share))
        singly = {owner for owner, shares in mine.items() if not self._offer_all(owner, shares)}
        for listing in listings if singly else ():
            self._queue_singly(listing.runs(), singly)

    def _split(self, listings: Sequence[Listing]) -> list[Share]:
        """Divide messages by their readers."""
        found: dict[int, Share] = {}
        for listing in listings:
            share_of: list[Share] = []
            for name in listing.names:
                readers = self._readers[name]
                share = found.get(id(readers))
                if share is None:
                    share = found[id(readers)] = Share(readers)
                share_of.append(share)
            if share_of.count(share_of[0]) == len(share_of):
                share_of[0].offsets.extend(listing.offsets)
                share_of[0].sizes.extend(listing.sizes)
                continue
            for topic, offset, size in zip(listing.topics, listing.offsets, listing.sizes, strict=True):
                share = share_of[topic]
                share.offsets.append(offset)
                share.sizes.append(size)
        return [share for share in found.values() if share.offsets]

    def _offer_all(
        self, owner: Session | SharedGroup[Session], shares: Sequence[tuple[Reader, Share]]
    ) -> bool:
        """Queue all messages of some listings for one session. Returns False if they go one by one."""
        offsets: list[int] = []
        size = 0
        for reader, share in shares:
            if not reader.is_plain:
                return False
            more, more_bytes = share.between(reader.after, reader.until)
            offsets, size = sorted((*offsets, *more)) if offsets else more, size + more_bytes
        assert isinstance(owner, Session)
        return not offsets or self._node.queues.offline_queue_of(owner).offer_all(offsets, size)

    def _queue_singly(self, runs: Iterable[Run], owners: set[Session | SharedGroup[Session]] | None) -> None:
        """Queue messages one by one, for some readers or for all."""
        now = self._node.clock.monotonic()
        for run in runs:
            for reader in self._readers[run.topic] if not run.is_expired(now) else ():
                if owners is None or reader.owner in owners:
                    self._queue_run(run, reader)

    def _queue_run(self, run: Run, reader: Reader) -> None:
        skip = max(reader.after + 1 - run.offset, 0)
        stop = min(reader.until + 1 - run.offset, run.count)
        if skip >= stop:
            return
        rest = run.part(skip, stop - skip)
        owner, encoding, wanted = reader.owner, reader.encoding, reader.wanted
        if isinstance(owner, SharedGroup):
            self._node.queues.enqueue_for_group(owner, rest)
        elif encoding.no_local and run.client_id == owner.client_id and run.shape.door is owner.door:
            return
        else:
            self._node.queues.enqueue_offline(
                owner, rest, encoding, self._node.queues.choose_policy(run, wanted)
            )


def _find_former(session: Session, topic: str, position: int, until: int) -> Iterator[Reader]:
    """Return what past filters of a session still cover of a topic; each offset once."""
    for each in sorted(session.past_subscriptions, key=_since_of):
        after, last = max(position, each.since), min(each.until, until)
        if after < last and matches(each.filter, topic):
            encoding = PendingEncoding((each.options,))
            wanted = Subscription(each.filter, each.options, encoding, each.policy, each.since)
            yield Reader(session, after, encoding, wanted, last, not encoding.no_local)
            position = last
