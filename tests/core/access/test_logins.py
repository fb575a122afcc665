"""Logins: tokens end by age, disuse, logout and a change of the password, and their number is bounded."""

from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.core.access import logins as module
from penstock.core.access.file_access import FileAccess
from penstock.core.access.logins import Logins
from tests.support.clock import ManualClock

QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class Scene:
    """Logins of two users, and the file of their passwords."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "passwords"
        self.write(ann="one", bob="two")
        self.clock = ManualClock()
        self.access = FileAccess.load(self.file, None, allow_anonymous=False)
        self.logins = Logins(self.access, self.clock, "node", lifetime_s=1_000, idle_s=100)

    def write(self, **users: str) -> None:
        self.file.write_text("".join(f"{user}:{QUICK.hash(word)}\n" for user, word in users.items()))

    def begin(self, user: str) -> bytes:
        return self.logins.begin(user).encode()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_token_stands_for_its_user(scene: Scene) -> None:
    ann, bob = scene.begin("ann"), scene.begin("bob")
    assert (scene.logins.find(ann), scene.logins.find(bob)) == ("ann", "bob")
    assert scene.logins.find(ann[:-1]) is None
    assert scene.logins.find(b"") is None
    assert len(ann) > 40


def test_tokens_are_kept_as_digests(scene: Scene) -> None:
    token = scene.begin("ann")
    assert token not in repr(vars(scene.logins)).encode()


def test_a_token_ends_by_logout_once(scene: Scene) -> None:
    first, second = scene.begin("ann"), scene.begin("ann")
    scene.logins.end(first)
    scene.logins.end(first)
    assert (scene.logins.find(first), scene.logins.find(second)) == (None, "ann")


def test_a_token_ends_without_use_and_lives_on_with_it(scene: Scene) -> None:
    used, idle = scene.begin("ann"), scene.begin("ann")
    for _ in range(2):
        scene.clock.advance(99)
        assert scene.logins.find(used) == "ann"
    assert scene.logins.find(idle) is None
    scene.clock.advance(100)
    assert scene.logins.find(used) is None
    assert len(scene.logins) == 0


def test_no_use_makes_a_token_older_than_its_limit(scene: Scene) -> None:
    token = scene.begin("ann")
    for _ in range(10):
        scene.clock.advance(99)
        assert scene.logins.find(token) == "ann"
    scene.clock.advance(10)
    assert scene.logins.find(token) is None


def test_other_limits_apply_to_present_tokens(scene: Scene) -> None:
    token = scene.begin("ann")
    scene.logins.configure(lifetime_s=1_000, idle_s=60)
    scene.clock.advance(60)
    assert scene.logins.find(token) is None


def test_another_password_or_none_ends_the_tokens_of_a_user(scene: Scene) -> None:
    ann, bob = scene.begin("ann"), scene.begin("bob")
    lines = scene.file.read_text().splitlines()
    scene.file.write_text(f"ann:{QUICK.hash('other')}\n{lines[1]}\n")
    scene.access.reload()
    scene.logins.recheck()
    assert (scene.logins.find(ann), scene.logins.find(bob)) == (None, "bob")
    scene.file.write_text("")
    scene.access.reload()
    scene.logins.recheck()
    assert scene.logins.find(bob) is None


def test_a_user_has_few_tokens_and_takes_none_of_others(scene: Scene) -> None:
    bob, tokens = scene.begin("bob"), [scene.begin("ann") for _ in range(module.MOST_PER_USER)]
    assert scene.logins.find(tokens[0]) == "ann"  # and so the second is the least recently used
    tokens.append(scene.begin("ann"))
    assert [scene.logins.find(token) for token in (bob, *tokens[:3])] == ["bob", "ann", None, "ann"]
    assert len(scene.logins) == module.MOST_PER_USER + 1


def test_all_users_have_so_many_tokens_at_most(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    first, second, third = scene.begin("ann"), scene.begin("bob"), scene.begin("ann")
    assert [scene.logins.find(token) for token in (first, second, third)] == [None, "bob", "ann"]


def test_servers_on_one_host_have_cookies_of_their_own(scene: Scene) -> None:
    names = {
        Logins(scene.access, scene.clock, server, lifetime_s=60, idle_s=60).cookie
        for server in ("a", "b", "a")
    }
    assert len(names) == 2
