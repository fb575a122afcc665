"""Cache of recently read pieces, limited by bytes."""

from penstock.storage.disk.pieces.frames import Frame, encode_frame
from penstock.storage.disk.pieces.piece import ROW_FACTOR, Rows
from penstock.storage.disk.read.loader import RecentPieces
from tests.support.samples import make_run


def rows(first: int) -> Rows:
    return Rows(encode_frame(Frame(1, first, first, 0, [make_run("a", bytes(1_000), offset=first)])))


def test_those_not_asked_for_longest_leave_first() -> None:
    recent = RecentPieces(limit_bytes=3 * rows(1).nbytes)
    for first in (1, 2, 3):
        recent.put((first, first), rows(first))
    assert recent.get((1, 1)) is not None
    recent.put((4, 4), rows(4))
    assert [first for first in range(1, 5) if recent.get((first, first)) is not None] == [1, 3, 4]


def test_what_is_put_again_is_counted_once() -> None:
    recent = RecentPieces(limit_bytes=2 * rows(1).nbytes)
    for _ in range(5):
        recent.put((1, 1), rows(1))
    recent.put((2, 2), rows(2))
    assert recent.get((1, 1)) is not None
    assert recent.get((2, 2)) is not None


def test_what_is_larger_than_the_limit_is_not_kept() -> None:
    recent = RecentPieces(limit_bytes=100)
    recent.put((1, 1), rows(1))
    assert recent.get((1, 1)) is None


def test_rows_are_taken_to_need_more_in_memory_than_on_disk() -> None:
    assert rows(1).nbytes == rows(1).stored_bytes * (1 + ROW_FACTOR)
