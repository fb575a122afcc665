"""Reads the log: runs, single messages, whole batches as Arrow streams; from any thread, in bounded chunks.

Frames and sealed batches are read alike. A piece that is not there any more when its turn comes was sealed or
has left by retention since the index was asked: it is asked again. A piece that cannot be read is a gap, and
the rest is served.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller
from sys import maxsize
from typing import TypeVar

from msgspec import MsgspecError

from penstock.core.archive import ArrowSpan, Portions
from penstock.core.ports import Lost, Span, Wanted
from penstock.core.sources import weight_of
from penstock.model import Run
from penstock.storage.disk.choice import Choice
from penstock.storage.disk.contents import Asked, Contents, NotReadable, Rows, Taken, extents_of
from penstock.storage.disk.frames import Extent, decode_extents
from penstock.storage.disk.index import Index, Piece
from penstock.storage.disk.layout import (
    SEQUENCES,
    TOPICS,
    offset_key,
    sequence_key,
    unpack_place,
)
from penstock.storage.disk.loading import Loader, alike
from penstock.storage.disk.portions import Bounds, split
from penstock.storage.disk.store import DamagedData, Store
from penstock.storage.disk.walking import PIECES_AT_ONCE, Walk, known_gaps

T = TypeVar("T")
RECENT_BYTES = 64 << 20
WORK_BYTES = 16 << 20
_SKIPPING = 16
"""How much less work it is to see that a piece is of no use than to look into it, about."""
_BYTES_AT_ONCE = 1 << 20
_LAST_SEQUENCE = (1 << 64) - 1


class Reader:
    """Answers questions about a log that grows, is sealed and is trimmed meanwhile."""

    def __init__(
        self,
        store: Store,
        index: Index,
        node_id: str = "",
        *,
        recent_bytes: int = RECENT_BYTES,
        work_bytes: int = WORK_BYTES,
    ) -> None:
        """Read a store as an index says.

        Args:
            node_id: what Arrow readers are told of messages that are not sealed.
            recent_bytes: how much of what was read is kept for the next who asks.
            work_bytes: how much a single read looks at, as stored, however little of it is wanted.
        """
        self._store = store
        self._index = index
        self._node_id = node_id
        self._work_bytes = work_bytes
        self._loader = Loader(store, recent_bytes)
        self._told: set[int] = set()  # where unreadable pieces begin that were told of
        self.on_damage: Callable[[Piece], None] = lambda piece: None  # called from any thread

    # Runs

    def runs(self, after: int, until: int, limit_bytes: int, wanted: Wanted | None) -> Span:
        """Runs between two offsets, oldest first, about `limit_bytes` of them; fewer where few are wanted."""
        walk, asked = Walk(self._index, after, until), _ask(wanted)
        runs: list[Run] = []

        def take(contents: Contents) -> Taken:
            return contents.take(walk.position, until, limit_bytes, asked)

        for piece, contents, taken in self._through(walk, take, asked, limit_bytes, self._work_bytes):
            runs += taken.runs
            walk.advance(piece, piece.last if taken.reached is None else taken.reached)
            limit_bytes -= sum(map(weight_of, taken.runs))
            if taken.reached is not None:  # someone will be back for the rest
                self._loader.keep(piece, contents)
            if taken.reached is not None or limit_bytes <= 0:
                break
        return Span(tuple(runs), walk.position, tuple(walk.gaps))

    def scan(self, after: int, until: int, wanted: Wanted) -> Iterator[Run | Lost]:
        """Every run at QoS 1 or 2 between two offsets that is wanted, and what is known of the unreadable."""
        walk, asked = Walk(self._index, after, until), Asked(wanted)

        def take(contents: Contents) -> list[Run]:
            return [run for run in contents.acknowledged(walk.position, asked) if run.offset <= until]

        def is_of_no_use(piece: Piece) -> bool:
            extents = self._extents(piece)
            return extents is not None and not any(
                extent.qos and asked[topic] for topic, extent in extents.items()
            )

        steps = self._through(walk, take, asked, 1, is_of_no_use=is_of_no_use)
        for piece, _, runs in steps:
            yield from self._find_lost(walk, asked)
            walk.advance(piece, piece.last)
            yield from runs
        yield from self._find_lost(walk, asked)

    def _find_lost(self, walk: Walk, asked: Asked) -> Iterator[Lost]:
        """What is known of the pieces on a walk that could not be read."""
        pieces, walk.unread = walk.unread, []
        for piece in pieces:
            for topic, extent in (self._extents(piece) or {}).items():
                if extent.qos and asked[topic]:
                    yield Lost(topic, extent.first, extent.last, piece.last)

    def fetch(self, offsets: Sequence[int]) -> dict[int, Run]:
        """Single messages by offset; those that are not there are left out."""
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
        """What is between two offsets as Arrow streams, about `limit_bytes` of them.

        Sealed batches leave as they are stored, unless less than all of it is asked for. With `limit_rows` it
        ends with the last of so many rows.

        Raises:
            ValueError: there is no such column.
        """
        from penstock.storage.disk.batches import Streams  # noqa: PLC0415 - it takes a while

        walk, asked = Walk(self._index, after, until), _ask(wanted)
        choice = Choice(self._extents, wanted, asked)
        room_rows = maxsize if limit_rows is None else limit_rows
        streams = Streams(self._node_id, after, until, asked, columns, room_rows, is_all=choice.is_all)
        for piece, _, reached in self._through(
            walk,
            lambda contents: streams.add(contents, walk.position),
            asked,
            limit_bytes if asked is None else 1,  # one by one, because many may be of no use
            self._work_bytes,
            is_of_no_use=choice.is_nothing,
        ):
            walk.advance(piece, piece.last if reached is None else reached)
            if reached is not None or streams.nbytes >= limit_bytes:
                break
        streams.finish()
        return ArrowSpan(tuple(streams.streams), walk.position, streams.rows, tuple(walk.gaps))

    def portions(self, bounds: Bounds, parts: int, wanted: Wanted | None) -> Portions:
        """What is within bounds in at most so many parts of about the same size, without reading it.

        Of what is not sealed it is not known which topics it has, so that it counts as if it had only those.
        """
        choice = Choice(self._extents, wanted, _ask(wanted))
        pieces = self._index.after(bounds.after, maxsize, bounds.until)
        portions = split(pieces, bounds, parts, choice.count)
        return Portions(portions, known_gaps(self._index, bounds.after, portions[-1].until))

    def find_time(self, wall_us: int, until: int) -> int:
        """The offset after which the first message of this time or later lies; 0 if that may have left."""
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
        """Which topics are in the pieces between two offsets, as far as they can be read."""
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
        """An offset after which a topic's messages from this sequence on lie; None if there are none."""
        found = self._find_sealed(topic, sequence)
        if found is None:
            found = self._find_unsealed(topic, sequence)
        return self._find_sealed(topic, sequence) if found is None else found  # or sealed meanwhile

    def last_sequence(self, topic: str) -> int:
        """The last sequence of a topic that was ever sealed; 0 if there was none."""
        prefix = sequence_key(topic, 0)[:-8]
        try:
            entry = self._store.last_before(SEQUENCES, sequence_key(topic, _LAST_SEQUENCE))
        except DamagedData:
            return max((extents[topic].last for _, extents in self._topics() if topic in extents), default=0)
        return unpack_place(entry[1])[1] if entry is not None and entry[0].startswith(prefix) else 0

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
            return self._index.first_offset - 1  # then it has to be looked for
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
        """What is stored of the topics of a sealed piece, if it can be read."""
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
        asked: Asked | None,
        room_bytes: int,
        work_bytes: int = maxsize,
        *,
        is_of_no_use: Callable[[Piece], bool] = lambda piece: False,
    ) -> Iterator[tuple[Piece, Contents, T]]:
        """The pieces on a walk with what someone makes of their contents; the taker advances the walk.

        Args:
            use: may fail if the contents turn out not to be readable; that is a gap.
            room_bytes: about how much will be taken, so that not much more is read at once.
            work_bytes: how much to look at before it is enough.
            is_of_no_use: tells of a piece, before it is read, that it can be left out.
        """
        while not walk.is_finished:
            ahead = walk.ahead(PIECES_AT_ONCE if room_bytes > 1 else 1)
            group = alike(ahead, min(room_bytes, _BYTES_AT_ONCE))
            if group and is_of_no_use(group[0]):
                walk.advance(group[0], group[0].last)
                work_bytes -= group[0].bytes // _SKIPPING
                if work_bytes <= 0:
                    return
                continue
            for piece, contents in self._loader.open(walk, group):
                try:
                    result = use(contents)
                except NotReadable:
                    self._miss(walk, piece, asked)
                    continue
                yield piece, contents, result
                work_bytes -= piece.bytes
                if work_bytes <= 0:
                    return

    def _miss(self, walk: Walk, piece: Piece, asked: Asked | None) -> None:
        """A piece cannot be read. That is no loss if it has nothing that is asked for."""
        if piece.first not in self._told:
            self._told.add(piece.first)
            self.on_damage(piece)
        extents = None if asked is None else self._extents(piece)
        if asked is None or extents is None or any(asked[topic] for topic in extents):
            walk.miss(piece)
        else:
            walk.advance(piece, piece.last)


def _find_time(wall_us: int, contents: Contents) -> int | None:
    """The offset of the first message of a time or later, if there is one."""
    if isinstance(contents, Rows):
        return next((run.offset for run in contents.frame.runs if run.published_at >= wall_us), None)
    from penstock.storage.disk.batches import Batch  # noqa: PLC0415 - who reads only rows does without

    assert isinstance(contents, Batch)
    return contents.find_time(wall_us)


def _ask(wanted: Wanted | None) -> Asked | None:
    return None if wanted is None else Asked(wanted)


def _extents_in(contents: Contents) -> dict[str, Extent]:
    return extents_of(contents.take(0, maxsize, maxsize, None).runs)
