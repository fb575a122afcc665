"""Attempts to make and to delete topics, which is for those who may publish to them."""

from tests.access.attempt import Attempt, Outcome, Where, shown
from tests.access.entrances import Ability, Credentials
from tests.access.naive import Rights
from tests.access.scene import Scene, credentials_of
from tests.access.web import HttpVisitor

REFUSED = 403
NONE = "secret/none"
"""Where there is no topic."""


async def enter(scene: Scene, user: str | None) -> HttpVisitor:
    """Somebody who comes to a door where topics are made."""
    visitor = await scene.enter(Credentials() if user is None else credentials_of(user), "m")
    assert isinstance(visitor, HttpVisitor)
    return visitor


async def is_listed(scene: Scene, name: str) -> bool:
    """Whether there is a topic, as its owner sees it."""
    visitor = await scene.entrance.enter(scene.guarded.server, credentials_of("owner"))
    assert isinstance(visitor, HttpVisitor)
    return name in await visitor.list_topics()


def making(
    name: str, user: str | None, outcome: Outcome = Outcome.REFUSED, where: Where = Where.STRICT
) -> Attempt:
    async def act(scene: Scene) -> Outcome:
        visitor = await enter(scene, user)
        was_there = await is_listed(scene, name)
        is_made = await visitor.make_topic(name) == 201
        assert await is_listed(scene, name) == (is_made or was_there)
        return Outcome.GRANTED if is_made else Outcome.REFUSED

    return Attempt(f"making the topic {shown(name)} as {shown(user)}", act, outcome, Ability.TOPICS, where)


def deleting(name: str, user: str | None, where: Where = Where.STRICT) -> Attempt:
    """Of a topic that is there, by somebody who may not."""

    async def act(scene: Scene) -> Outcome:
        visitor = await enter(scene, user)
        is_deleted = await visitor.delete_topic(name) == 204
        reader = await scene.trusted("owner")
        assert await reader.subscribe(name)
        assert (name, b"kept") in await reader.heard(), "it has its value"
        return Outcome.GRANTED if is_deleted else Outcome.REFUSED

    title = f"deleting the topic {shown(name)} as {shown(user)}"
    return Attempt(title, act, Outcome.REFUSED, Ability.TOPICS, where)


async def delete_own(scene: Scene) -> Outcome:
    visitor = await enter(scene, "mallory")
    assert await visitor.publish("open/short", b"said")
    assert await is_listed(scene, "open/short")
    is_deleted = await visitor.delete_topic("open/short") == 204
    assert not await is_listed(scene, "open/short")
    return Outcome.GRANTED if is_deleted else Outcome.REFUSED


async def look_for_a_secret(scene: Scene) -> Outcome:
    """Whether something is there must not show in how one is refused."""
    visitor = await enter(scene, "mallory")
    there, nowhere = [await visitor.delete_topic(name) for name in ("secret/a", NONE)]
    return Outcome.UNHEARD if there == nowhere == REFUSED else Outcome.GRANTED


async def delete_after_the_change(scene: Scene) -> Outcome:
    visitor = await enter(scene, "carol")
    assert await visitor.publish("secret/carols", b"said")
    await scene.guarded.change({"carol": Rights(("open/+",), ("open/+",))})
    is_deleted = await visitor.delete_topic("secret/carols") == 204
    assert await is_listed(scene, "secret/carols")
    return Outcome.GRANTED if is_deleted else Outcome.REFUSED


TOPIC_ATTEMPTS: tuple[Attempt, ...] = (
    *(making(name, "mallory") for name in ("secret", "open", "stolen", "..", "$SYS", "open/made", "#")),
    making("stolen", None, where=Where.GUESTS),
    making("secret", "carol", Outcome.GRANTED),
    making("made-by-its-owner", "owner", Outcome.GRANTED),
    *(deleting(name, "mallory") for name in ("secret", "secret/a", "open/a/b", "own/owner/o", "public/a")),
    deleting("secret", None, Where.GUESTS),
    Attempt("deleting what one may publish to", delete_own, Outcome.GRANTED, Ability.TOPICS),
    Attempt("looking for a secret by deleting it", look_for_a_secret, Outcome.UNHEARD, Ability.TOPICS),
    Attempt(
        "deleting what one may not publish to any more",
        delete_after_the_change,
        Outcome.REFUSED,
        Ability.TOPICS,
        Where.CHANGING,
    ),
)
