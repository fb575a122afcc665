"""Reader of the log: runs, single messages, Arrow streams. Thread-safe; every read is bounded.

Frames and sealed batches are read in the same way. A missing piece was sealed or removed by retention since
the index lookup: the index is asked again. An unreadable piece is a gap, and the rest is served.

Names of sealed topics are read from the sequence keys, which outlive the messages. A topic may have a key for
each of very many batches, so most of them are skipped.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller
from sys import maxsize
from typing import TypeVar

from msgspec import MsgspecError

from penstock.core.ports.archive import ArrowSpan, Portions
from penstock.core.ports.log import Listing, Lost, Span, Wanted
from penstock.core.replay.sources import weight_of
from penstock.runs import Run
from penstock.storage.disk.pieces.frames import Extent, decode_extents
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import (
    Contents,
    NotReadable,
    Piece,
    Rows,
    Selection,
    Taken,
    WantedTopics,
    extents_of,
)
from penstock.storage.disk.read.loader import Loader, same_kind
from penstock.storage.disk.read.ranges import PIECES_AT_ONCE, Bounds, Walk, known_gaps, split
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import (
    SEQUENCES,
    TOPICS,
    last_sequence_key,
    offset_key,
    sequence_key,
    topic_of,
    unpack_place,
)
from penstock.storage.disk.rocksdb.store import Store

T = TypeVar("T")
RECENT_BYTES = 64 << 20
WORK_BYTES = 16 << 20
_SKIPPING = 16
"""Cost of loading a piece relative to skipping it, about."""
_BYTES_AT_ONCE = 1 << 20
_LAST_SEQUENCE = (1 << 64) - 1
KEYS_LOOKED_AT = 8
"""Keys of one topic that are read before the rest is skipped."""

Names = list[tuple[str, int]]
"""Topics, each with its last sequence."""


class Reader:
    """Reads a log that is appended to, sealed and trimmed at the same time."""

    def __init__(
        self,
        store: Store,
        index: Index,
        node_id: str = "",
        *,
        recent_bytes: int = RECENT_BYTES,
        work_bytes: int = WORK_BYTES,
    ) -> None:
        """Read a store by its index.

        Args:
            node_id: value of the column `node_id` for unsealed messages.
            recent_bytes: size of the cache.
            work_bytes: stored bytes that a single read looks at, even if few messages are wanted.
        """
        self._store = store
        self._index = index
        self._node_id = node_id
        self._work_bytes = work_bytes
        self._loader = Loader(store, recent_bytes)
        self._reported: set[int] = set()  # first offsets of unreadable pieces passed to `on_damage`
        self.on_damage: Callable[[Piece], None] = lambda piece: None  # called from any thread

    # Runs

    def runs(self, after: int, until: int, limit_bytes: int, wanted: Wanted | None) -> Span:
        """Wanted runs between two offsets, oldest first, about `limit_bytes`; fewer if few are wanted."""
        walk, wanted_topics = Walk(self._index, after, until), _cached(wanted)
        runs: list[Run] = []

        def take(contents: Contents) -> Taken:
            return contents.take(walk.position, until, limit_bytes, wanted_topics)

        for piece, contents, taken in self._through(walk, take, wanted_topics, limit_bytes, self._work_bytes):
            runs += taken.runs
            walk.advance(piece, piece.last if taken.reached is None else taken.reached)
            limit_bytes -= sum(map(weight_of, taken.runs))
            if taken.reached is not None:  # the caller will read the rest
                self._loader.keep(piece, contents)
            if taken.reached is not None or limit_bytes <= 0:
                break
        return Span(tuple(runs), walk.position, tuple(walk.gaps))

    def scan(self, after: int, until: int, wanted: Wanted) -> Iterator[Listing | Lost]:
        """Every wanted message at QoS 1 or 2 between two offsets, and `Lost` for unreadable ones."""
        walk, wanted_topics = Walk(self._index, after, until), WantedTopics(wanted)

        def take(contents: Contents) -> Listing:
            return contents.listing(walk.position, until, wanted_topics)

        def can_skip(piece: Piece) -> bool:
            extents = self._extents(piece)
            return extents is not None and not any(
                extent.qos and wanted_topics[topic] for topic, extent in extents.items()
            )

        steps = self._through(walk, take, wanted_topics, 1, can_skip=can_skip)
        for piece, _, listing in steps:
            yield from self._find_lost(walk, wanted_topics)
            walk.advance(piece, piece.last)
            if listing.offsets:
                yield listing
        yield from self._find_lost(walk, wanted_topics)

    def _find_lost(self, walk: Walk, wanted_topics: WantedTopics) -> Iterator[Lost]:
        """Known topics and sequences of the unreadable pieces of a walk."""
        pieces, walk.unread = walk.unread, []
        for piece in pieces:
            for topic, extent in (self._extents(piece) or {}).items():
                if extent.qos and wanted_topics[topic]:
                    yield Lost(topic, extent.first, extent.last, piece.last)

    def fetch(self, offsets: Sequence[int]) -> dict[int, Run]:
        """Single messages by offset; missing ones are omitted."""
        found: dict[int, Run] = {}
        missing = sorted(set(offsets))
        while missing:
            walk = Walk(self._index, missing[0] - 1, missing[-1])
            step = next(self._through(walk, methodcaller("fetch", missing), None, 1), None)
            if step is None:
                break
            piece, contents, messages = step
            self._loader.keep(piece, contents)
            found |= messages
            missing = missing[bisect_right(missing, piece.last) :]
        return found

    # Arrow

    def arrow(
        self,
        after: int,
        until: int,
        limit_bytes: int,
        wanted: Wanted | None = None,
        columns: Sequence[str] | None = None,
        limit_rows: int | None = None,
    ) -> ArrowSpan:
        """Wanted messages between two offsets as Arrow streams, about `limit_bytes`.

        Sealed batches are returned as stored, unless only a part is wanted. With `limit_rows` the result has
        at most that many rows.

        Raises:
            ValueError: unknown column.
        """
        from penstock.storage.disk.pieces.arrow_batches import Streams  # noqa: PLC0415 - slow import

        walk, wanted_topics = Walk(self._index, after, until), _cached(wanted)
        selection = Selection(self._extents, wanted, wanted_topics)
        room_rows = maxsize if limit_rows is None else limit_rows
        streams = Streams(
            self._node_id, after, until, wanted_topics, columns, room_rows, is_all=selection.is_all
        )
        for piece, _, reached in self._through(
            walk,
            lambda contents: streams.add(contents, walk.position),
            wanted_topics,
            limit_bytes if wanted_topics is None else 1,  # one by one, because many may be skipped
            self._work_bytes,
            can_skip=selection.is_nothing,
        ):
            walk.advance(piece, piece.last if reached is None else reached)
            if reached is not None or streams.nbytes >= limit_bytes:
                break
        streams.finish()
        return ArrowSpan(tuple(streams.streams), walk.position, streams.rows, tuple(walk.gaps))

    def portions(self, bounds: Bounds, parts: int, wanted: Wanted | None) -> Portions:
        """Split a range into at most `parts` portions of similar size, without loading pieces.

        Topics of unsealed pieces are unknown: all their messages count as wanted.
        """
        selection = Selection(self._extents, wanted, _cached(wanted))
        pieces = self._index.after(bounds.after, maxsize, bounds.until)
        portions = split(pieces, bounds, parts, selection.count)
        return Portions(portions, known_gaps(self._index, bounds.after, portions[-1].until))

    def find_time(self, wall_us: int, until: int) -> int:
        """Offset before the first message at or after a time; 0 if that may have been removed."""
        oldest = self._index.after(0, 1)
        if not oldest or oldest[0].began_at > wall_us:
            return 0
        walk = Walk(self._index, self._index.at_time(wall_us), until)
        for piece, _, found in self._through(walk, partial(_find_time, wall_us), None, 1):
            if found is not None:
                return found - 1
            walk.advance(piece, piece.last)
        return until

    # Topics and sequences

    def topics_between(self, after: int, until: int) -> Iterator[tuple[Piece, dict[str, Extent]]]:
        """Topics of the readable pieces between two offsets."""
        walk = Walk(self._index, after, until)
        while not walk.is_finished:
            for piece in walk.ahead(PIECES_AT_ONCE):
                extents = self._extents(piece)
                if extents is None:
                    break
                walk.advance(piece, piece.last)
                yield piece, extents
            else:
                continue
            for piece, _, extents in self._through(walk, _extents_in, None, 1, 1):
                walk.advance(piece, piece.last)
                yield piece, extents

    def find_sequence(self, topic: str, sequence: int) -> int | None:
        """Offset before the messages of a topic from this sequence on; None if there are none."""
        found = self._find_sealed(topic, sequence)
        if found is None:
            found = self._find_unsealed(topic, sequence)
        return self._find_sealed(topic, sequence) if found is None else found  # sealed meanwhile

    def last_sequence(self, topic: str) -> int:
        """The last sealed sequence of a topic; 0 if there was none."""
        prefix = sequence_key(topic, 0)[:-8]
        try:
            entry = self._store.last_before(SEQUENCES, sequence_key(topic, _LAST_SEQUENCE))
        except DamagedData:
            return max((extents[topic].last for _, extents in self._topics() if topic in extents), default=0)
        return unpack_place(entry[1])[1] if entry is not None and entry[0].startswith(prefix) else 0

    def last_sequences(self, topics: Sequence[str]) -> dict[str, int]:
        """The last sealed sequences of many topics, in one pass; topics without are omitted.

        Raises:
            DamagedData: some cannot be read.
        """
        topic_by_prefix = {sequence_key(topic, 0)[:-8]: topic for topic in topics}
        found = self._store.last_values(SEQUENCES, sorted(topic_by_prefix))
        return {topic_by_prefix[prefix]: unpack_place(value)[1] for prefix, value in found.items()}

    def _topics(self) -> Iterator[tuple[Piece, dict[str, Extent]]]:
        return self.topics_between(self._index.first_offset - 1, self._index.last_offset)

    def _find_sealed(self, topic: str, sequence: int) -> int | None:
        key, prefix = sequence_key(topic, sequence), sequence_key(topic, 0)[:-8]
        try:
            entry = self._store.last_before(SEQUENCES, key)
            if entry is None or not entry[0].startswith(prefix) or unpack_place(entry[1])[1] < sequence:
                following = self._store.scan(SEQUENCES, key, sequence_key(topic, _LAST_SEQUENCE))
                entry = next(following, None)
        except DamagedData:
            return self._index.first_offset - 1  # unknown: search from the start
        return None if entry is None else unpack_place(entry[1])[0] - 1

    def _find_unsealed(self, topic: str, sequence: int) -> int | None:
        frames = self._index.unsealed(maxsize)
        walk = Walk(self._index, frames[0].first - 1 if frames else 0, frames[-1].last if frames else 0)
        for piece, _, extents in self._through(walk, _extents_in, None, maxsize):
            if topic in extents and extents[topic].last >= sequence:
                return piece.first - 1
            walk.advance(piece, piece.last)
        return None

    def _extents(self, piece: Piece) -> dict[str, Extent] | None:
        """Stored topic extents of a sealed piece; None if unreadable or not sealed."""
        try:
            (data,) = self._store.get(TOPICS, [offset_key(piece.first)]) if piece.is_sealed else (None,)
            return None if data is None else decode_extents(data)
        except (DamagedData, MsgspecError):
            return None

    # Pieces

    def _through(
        self,
        walk: Walk,
        use: Callable[[Contents], T],
        wanted_topics: WantedTopics | None,
        room_bytes: int,
        work_bytes: int = maxsize,
        *,
        can_skip: Callable[[Piece], bool] = lambda piece: False,
    ) -> Iterator[tuple[Piece, Contents, T]]:
        """The pieces of a walk with their contents and the result of `use`; the caller advances the walk.

        Args:
            use: called with the contents; `NotReadable` makes the piece a gap.
            room_bytes: about how much will be used, which limits how much is loaded at once.
            work_bytes: stored bytes to look at before it ends.
            can_skip: True if a piece need not be loaded.
        """
        while not walk.is_finished:
            ahead = walk.ahead(PIECES_AT_ONCE if room_bytes > 1 else 1)
            group = same_kind(ahead, min(room_bytes, _BYTES_AT_ONCE))
            if group and can_skip(group[0]):
                walk.advance(group[0], group[0].last)
                work_bytes -= group[0].bytes // _SKIPPING
                if work_bytes <= 0:
                    return
                continue
            for piece, contents in self._loader.open(walk, group):
                try:
                    result = use(contents)
                except NotReadable:
                    self._miss(walk, piece, wanted_topics)
                    continue
                yield piece, contents, result
                work_bytes -= piece.bytes
                if work_bytes <= 0:
                    return

    def _miss(self, walk: Walk, piece: Piece, wanted_topics: WantedTopics | None) -> None:
        """Handle an unreadable piece: a gap, unless none of its topics is wanted."""
        if piece.first not in self._reported:
            self._reported.add(piece.first)
            self.on_damage(piece)
        extents = None if wanted_topics is None else self._extents(piece)
        if wanted_topics is None or extents is None or any(wanted_topics[topic] for topic in extents):
            walk.miss(piece)
        else:
            walk.advance(piece, piece.last)


def _find_time(wall_us: int, contents: Contents) -> int | None:
    """Offset of the first message at or after a time, if there is one."""
    if isinstance(contents, Rows):
        return next((run.offset for run in contents.frame.runs if run.published_at >= wall_us), None)
    from penstock.storage.disk.pieces.arrow_batches import Batch  # noqa: PLC0415 - slow import, not needed for rows

    assert isinstance(contents, Batch)
    return contents.find_time(wall_us)


def _cached(wanted: Wanted | None) -> WantedTopics | None:
    return None if wanted is None else WantedTopics(wanted)


def _extents_in(contents: Contents) -> dict[str, Extent]:
    return extents_of(contents.take(0, maxsize, maxsize, None).runs)


def topics_after(store: Store, name: str, limit: int) -> tuple[Names, bool]:
    """The first sealed topics after a name, and whether all of them could be read."""
    found: Names = []
    place: bytes | None = _behind(name)
    is_whole = True
    while place is not None and len(found) < limit:
        try:
            place = _add(store, found, place, limit)
        except DamagedData as error:
            is_whole = False
            place = store.readable_after(SEQUENCES, error.key)
    return found, is_whole


def _add(store: Store, found: Names, place: bytes, limit: int) -> bytes | None:
    """Add topics from a key on; return where to continue, None at the end."""
    keys = 0
    for key, value in store.scan(SEQUENCES, place):
        topic, last = topic_of(key), unpack_place(value)[1]
        if found and found[-1][0] == topic:
            found[-1] = (topic, last)
        elif len(found) == limit:
            return None
        else:
            found.append((topic, last))
            keys = 0
        keys += 1
        if keys == KEYS_LOOKED_AT:
            newest = store.last_before(SEQUENCES, last_sequence_key(topic))
            found[-1] = (topic, last if newest is None else unpack_place(newest[1])[1])
            return _behind(topic)
    return None


def _behind(topic: str) -> bytes:
    """Lower bound for the keys of the next topic."""
    return topic.encode() + b"\x01" if topic else b""
