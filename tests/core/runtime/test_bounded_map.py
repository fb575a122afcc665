"""A map that keeps the latest, up to a number of them and for a time."""

import random

from penstock.core.runtime.bounded_map import BoundedMap


def filled(limit: int, *keys: str) -> BoundedMap[str, str]:
    entries: BoundedMap[str, str] = BoundedMap(limit)
    for key in keys:
        entries.put(key, key.upper(), expires_at=10.0)
    return entries


def test_an_entry_is_found_until_it_expires() -> None:
    entries = filled(3, "a")
    assert (entries.find("a", 9.9), entries.find("a", 10.0), entries.find("b", 0.0)) == ("A", None, None)
    assert entries.find("a") == "A"  # whatever the time
    assert len(entries) == 1  # it is there until it is taken
    assert "a" in entries


def test_what_exceeds_the_limit_leaves_oldest_first() -> None:
    entries = filled(2, "a", "b", "c", "d")
    assert entries.take_stale(0.0) == [("a", "A")]
    assert entries.take_stale(0.0, 9) == [("b", "B")]
    assert entries.take_stale(0.0, 9) == []
    assert list(entries) == ["c", "d"]
    assert list(reversed(entries)) == ["d", "c"]


def test_what_has_expired_leaves_oldest_first_and_no_more_at_once_than_wanted() -> None:
    entries = filled(9, "a", "b", "c")
    entries.put("d", "D", expires_at=20.0)
    assert entries.take_stale(9.9, 9) == []
    assert entries.take_stale(10.0, 2) == [("a", "A"), ("b", "B")]
    assert entries.take_stale(10.0, 9) == [("c", "C")]
    assert list(entries) == ["d"]


def test_who_is_used_or_put_again_is_the_latest() -> None:
    entries = filled(2, "a", "b")
    assert (entries.use("a"), entries.use("x")) == ("A", None)
    entries.put("c", "C")
    assert entries.take_stale() == [("b", "B")]
    entries.put("a", "again")
    entries.put("d", "D")
    assert entries.take_stale() == [("c", "C")]
    assert entries.find("a") == "again"


def test_an_entry_that_is_removed_is_gone() -> None:
    entries = filled(2, "a", "b")
    assert (entries.pop("a"), entries.pop("a"), list(entries)) == ("A", None, ["b"])
    entries.clear()
    assert not len(entries)


def test_another_limit_counts_from_now_on() -> None:
    entries = filled(3, "a", "b", "c")
    entries.limit = 1
    assert entries.take_stale(0.0, 9) == [("a", "A"), ("b", "B")]
    entries.limit = 0
    assert entries.take_stale(0.0) == [("c", "C")]


def test_a_model_of_it_has_the_same_entries() -> None:
    chance = random.Random(3)
    entries: BoundedMap[int, int] = BoundedMap(20)
    model: dict[int, tuple[int, float]] = {}  # the oldest first
    now = 0.0
    for step in range(20_000):
        key = chance.randrange(60)
        match chance.randrange(4):
            case 0:
                model.pop(key, None)
                model[key] = (step, now + chance.random() * 9)
                entries.put(key, *model[key])
            case 1:
                assert entries.use(key) == model.get(key, (None,))[0]
                if key in model:
                    model[key] = model.pop(key)
            case 2:
                assert entries.pop(key) == model.pop(key, (None,))[0]
            case _:
                now += 0.1
                for taken, value in entries.take_stale(now, chance.randrange(5)):
                    assert taken == next(iter(model))
                    assert len(model) > 20 or model[taken][1] <= now
                    assert model.pop(taken)[0] == value
        assert list(entries) == list(model)
