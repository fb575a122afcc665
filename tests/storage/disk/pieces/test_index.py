"""Index of pieces, while several threads commit, seal and trim."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from threading import Lock, Thread

import pytest

from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece

NOON = 1_700_000_000_000_000


def frame(first: int, last: int, *, at: int = NOON, size: int = 100) -> Piece:
    return Piece(first, last, last - first + 1, size, at, is_sealed=False)


def batch(first: int, last: int, *, at: int = NOON, size: int = 100) -> Piece:
    return Piece(first, last, last - first + 1, size, at, is_sealed=True)


def places(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    return [(piece.first, piece.last) for piece in pieces]


@pytest.fixture
def index() -> Index:
    """Ten offsets in a batch, then three frames of five."""
    return Index([batch(1, 10), frame(11, 15), frame(16, 20), frame(21, 25)])


# Asking


def test_an_empty_index_ends_before_it_begins() -> None:
    index = Index()
    assert (index.first_offset, index.last_offset, index.bytes, len(index)) == (1, 0, 0, 0)
    assert (index.after(0), index.unsealed(10), index.gaps(0, 9)) == ([], [], [])
    assert index.at_time(NOON) == 0


def test_an_empty_trimmed_index_knows_the_next_offset() -> None:
    index = Index([frame(1, 10)])
    index.trim(11)
    assert (index.first_offset, index.last_offset, len(index)) == (11, 10, 0)
    index.add(frame(11, 12))
    assert index.last_offset == 12


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, [(1, 10), (11, 15)]),
        (9, [(1, 10), (11, 15)]),
        (10, [(11, 15), (16, 20)]),
        (20, [(21, 25)]),
        (25, []),
        (99, []),
    ],
)
def test_pieces_after_an_offset_are_those_that_reach_beyond_it(
    index: Index, offset: int, expected: list[tuple[int, int]]
) -> None:
    assert places(index.after(offset, limit=2)) == expected


def test_pieces_after_the_end_are_not_returned(index: Index) -> None:
    assert places(index.after(0, until=16)) == [(1, 10), (11, 15), (16, 20)]
    assert places(index.after(0, until=15)) == [(1, 10), (11, 15)]


def test_only_frames_behind_the_last_batch_wait_to_be_sealed(index: Index) -> None:
    assert places(index.unsealed(2)) == [(11, 15), (16, 20)]
    index.replace(batch(16, 20))  # the frame before it could not be
    assert places(index.unsealed(10)) == [(21, 25)]


# Committed, sealed, trimmed


def test_what_is_committed_is_the_end(index: Index) -> None:
    index.add(frame(26, 30, size=7))
    assert (index.last_offset, index.bytes, len(index)) == (30, 407, 5)


def test_a_batch_takes_the_place_of_its_frames(index: Index) -> None:
    index.replace(batch(11, 20, size=30))
    assert places(index.after(0)) == [(1, 10), (11, 20), (21, 25)]
    assert index.bytes == 230
    assert index.gaps(0, 25) == []


def test_a_batch_may_reach_back_before_what_is_left_of_it(index: Index) -> None:
    index.trim(16)
    index.replace(batch(11, 25, size=30))
    assert places(index.after(0)) == [(11, 25)]
    assert (index.first_offset, index.bytes) == (16, 30)


def test_trim_removes_whole_pieces(index: Index) -> None:
    index.trim(16)
    assert places(index.after(0)) == [(16, 20), (21, 25)]
    assert (index.first_offset, index.last_offset, index.bytes) == (16, 25, 200)


def test_a_piece_that_is_needed_in_part_stays(index: Index) -> None:
    index.trim(13)
    assert places(index.after(0))[0] == (11, 15)
    assert index.first_offset == 13


# What is missing


def test_what_no_piece_covers_is_missing() -> None:
    index = Index([frame(3, 5), frame(8, 9), frame(15, 15)])
    assert index.gaps(0, 20) == [(1, 2), (6, 7), (10, 14), (16, 20)]
    assert index.gaps(3, 12) == [(6, 7), (10, 12)]
    assert index.gaps(8, 9) == []


def test_what_left_by_retention_is_not_missing() -> None:
    index = Index([frame(3, 5), frame(8, 9)], first_offset=3)
    assert index.gaps(0, 9) == [(6, 7)]
    index.trim(8)
    assert index.gaps(0, 9) == []


# Time


def test_everything_from_a_time_on_lies_after_its_offset() -> None:
    index = Index([frame(first, first + 9, at=NOON + first) for first in (1, 11, 21)])
    assert [index.at_time(NOON + later) for later in (0, 1, 2, 11, 12, 21, 22, 99)] == [
        0, 0, 0, 0, 10, 10, 20, 20
    ]  # fmt: skip


def test_what_came_after_the_clock_was_set_back_is_found_by_its_time() -> None:
    """Whoever asks for a time may get too much, and nothing is left out."""
    index = Index([frame(1, 1, at=NOON), frame(2, 2, at=NOON + 1_000)])
    index.add(frame(3, 3, at=NOON + 10))
    index.add(frame(4, 4, at=NOON + 2_000))
    assert index.at_time(NOON + 10) < 3
    assert index.at_time(NOON + 2_000) == 2


@pytest.mark.parametrize("how", ["at start", "added", "sealed"])
def test_times_never_go_back_however_a_piece_comes_in(how: str) -> None:
    early, late = frame(1, 1, at=NOON + 50), frame(2, 2, at=NOON)
    index = Index([early, late] if how == "at start" else [early])
    if how != "at start":
        index.add(late)
    if how == "sealed":
        index.replace(batch(2, 2, at=NOON))
    assert [piece.began_at for piece in index.after(0)] == [NOON + 50] * 2


# All at once


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_a_plain_list_whatever_happens(seed: int) -> None:
    chance, index = Random(seed), Index()
    model: list[Piece] = []
    for _ in range(200):
        match chance.choice("aaast"):
            case "a":
                first = index.last_offset + 1
                model.append(frame(first, first + chance.randrange(4), size=chance.randrange(9)))
                index.add(model[-1])
            case "s" if unsealed := [piece for piece in model if not piece.is_sealed]:
                chosen = unsealed[: chance.randint(1, 5)]
                sealed = batch(chosen[0].first, chosen[-1].last, size=chance.randrange(9))
                place = model.index(chosen[0])
                model[place : place + len(chosen)] = [sealed]
                index.replace(sealed)
            case "t" if len(model) > 1:
                del model[: chance.randrange(len(model))]
                index.trim(model[0].first)
        assert index.after(0, 1_000) == model
        assert index.bytes == sum(piece.bytes for piece in model)
        if model:
            offset = chance.randint(model[0].first - 1, model[-1].last)
            assert index.after(offset) == [piece for piece in model if piece.last > offset]


def test_readers_see_pieces_that_meet_while_others_change_them() -> None:
    index = Index([frame(1, 1)])
    total = 3_000
    quiet = Lock()  # nobody seals what is leaving
    wrong: list[object] = []

    def seal() -> None:
        done = 0
        while done < total - 10:
            with quiet:
                frames = index.unsealed(7)
                if frames:
                    index.replace(batch(frames[0].first, frames[-1].last))
                    done = frames[-1].last

    def read() -> None:
        while index.last_offset < total:
            pieces = index.after(index.first_offset - 1, 50)
            wrong.extend(pair for pair in pairwise(pieces) if pair[0].last + 1 != pair[1].first)

    threads = [Thread(target=seal), Thread(target=read), Thread(target=read)]
    for thread in threads:
        thread.start()
    for offset in range(2, total + 1):
        index.add(frame(offset, offset))
        if offset % 500 == 0:
            with quiet:
                index.trim(offset - 200)
    for thread in threads:
        thread.join()
    assert wrong == []
    assert index.gaps(index.first_offset - 1, total) == []
