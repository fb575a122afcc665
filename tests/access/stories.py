"""Attempts that take more than one step: rights that change, sessions of others, wills and aliases."""

import asyncio
from collections.abc import Callable

from tests.access.attempt import Act, Attempt, Outcome, Where
from tests.access.entrances import Ability, Credentials, MqttVisitor
from tests.access.naive import Rights
from tests.access.scene import NEWS_EVERY_MS, NFD, RIGHTS, Scene, credentials_of, password_of

STORIES: list[Attempt] = []


def story(
    name: str, outcome: Outcome, needs: Ability = Ability.NOTHING, where: Where = Where.CHANGING
) -> Callable[[Act], Act]:
    """Put an act into the table."""

    def put(act: Act) -> Act:
        STORIES.append(Attempt(name, act, outcome, needs, where))
        return act

    return put


NO_SECRETS = Rights(("open/+",), ("open/+",))
"""What is left of carol's rights when she has lost the better half."""


async def since_the_change(scene: Scene) -> Outcome:
    """What carol hears now of what she could hear before."""
    before = len(scene.heard)
    await scene.tell_everything()
    await scene.watch()
    secrets = [topic for topic, _ in scene.heard[before:] if topic.startswith("secret")]
    return Outcome.GRANTED if secrets else Outcome.UNHEARD


@story("a second hello as the owner", Outcome.REFUSED, Ability.SECOND_HELLO, Where.STRICT)
async def second_hello(scene: Scene) -> Outcome:
    visitor = await scene.enter(credentials_of("mallory"), "m")
    assert isinstance(visitor, MqttVisitor)
    is_taken = await visitor.say_hello_again(credentials_of("owner"))
    await scene.tell_everything()
    return Outcome.GRANTED if is_taken else Outcome.REFUSED


@story("another name than the one that was proven", Outcome.REFUSED, Ability.PROOFS, Where.STRICT)
async def claimed_name(scene: Scene) -> Outcome:
    visitor = await scene.enter(Credentials("mallory", password_of("mallory"), claimed="owner"), "m")
    assert visitor is not None and await visitor.subscribe("own/mallory/m")
    is_granted = await visitor.subscribe("secret") or await visitor.subscribe("own/owner/m")
    await scene.tell_everything()
    return Outcome.GRANTED if is_granted else Outcome.REFUSED


@story("proving to be somebody else later", Outcome.REFUSED, Ability.PROOFS, Where.STRICT)
async def second_proof(scene: Scene) -> Outcome:
    visitor = await scene.enter(credentials_of("mallory"), "m")
    assert isinstance(visitor, MqttVisitor)
    assert await visitor.prove_again(credentials_of("mallory"))
    is_taken = await visitor.prove_again(credentials_of("victim"))
    await scene.tell_everything()
    return Outcome.GRANTED if is_taken else Outcome.REFUSED


@story("a will beyond one's rights", Outcome.TURNED_AWAY, Ability.WILLS, Where.STRICT)
async def forbidden_will(scene: Scene) -> Outcome:
    for topic in ("secret", "open/a/b", "$SYS/x", "own/owner/o", "open/../secret", f"{NFD}/news"):
        visitor = await scene.enter(credentials_of("mallory"), "m", will=(topic, b"forged"))
        if visitor is not None:
            return Outcome.LET_IN
    assert await scene.forged() == []
    return Outcome.TURNED_AWAY


@story("a will that was allowed when it was made", Outcome.UNHEARD, Ability.WILLS)
async def will_after_the_change(scene: Scene) -> Outcome:
    visitor = await scene.enter(credentials_of("carol"), "c", will=("secret/will", b"forged"))
    assert visitor is not None
    await scene.guarded.change({"carol": NO_SECRETS})
    await asyncio.sleep(4 * NEWS_EVERY_MS / 1000)  # news are told once the server knows that somebody listens
    await visitor.vanish()
    return Outcome.GRANTED if await scene.is_published("secret/will") else Outcome.UNHEARD


@story("a will that is still allowed", Outcome.GRANTED, Ability.WILLS)
async def will_within(scene: Scene) -> Outcome:
    visitor = await scene.enter(credentials_of("carol"), "c", will=("open/will", b"said"))
    assert visitor is not None
    await scene.guarded.change({"carol": NO_SECRETS})
    await visitor.vanish()
    return Outcome.GRANTED if await scene.is_published("open/will") else Outcome.UNHEARD


@story("the client id of somebody who is here", Outcome.TURNED_AWAY, Ability.SESSIONS, Where.STRICT)
async def taking_over(scene: Scene) -> Outcome:
    victim = await scene.trusted("victim", "theirs", stays=True)
    assert await victim.subscribe("secret/#")
    intruder = await scene.enter(credentials_of("mallory"), "theirs", stays=True)
    await scene.tell_everything()
    assert len(await victim.heard()) > 3, "nothing happened to the victim"
    return Outcome.TURNED_AWAY if intruder is None else Outcome.LET_IN


@story("the client id of somebody who is away", Outcome.TURNED_AWAY, Ability.SESSIONS, Where.STRICT)
async def taking_what_is_owed(scene: Scene) -> Outcome:
    victim = await scene.trusted("victim", "absent", stays=True)
    assert await victim.subscribe("secret/#")
    await victim.leave()
    await scene.tell_everything()
    intruder = await scene.enter(credentials_of("mallory"), "absent", stays=True)
    victim = await scene.trusted("victim", "absent", stays=True)
    assert victim.is_known and len(await victim.heard()) > 3, "its queue is untouched"
    return Outcome.TURNED_AWAY if intruder is None else Outcome.LET_IN


@story(
    "the client id of somebody, with a wrong password", Outcome.TURNED_AWAY, Ability.SESSIONS, Where.STRICT
)
async def failing_to_take_over(scene: Scene) -> Outcome:
    victim = await scene.trusted("victim", "kept", stays=True)
    assert await victim.subscribe("secret/#")
    intruder = await scene.enter(Credentials("mallory", b"guess"), "kept", stays=True)
    await scene.tell_everything()
    assert len(await victim.heard()) > 3, "nothing happened to the victim"
    return Outcome.TURNED_AWAY if intruder is None else Outcome.LET_IN


@story("one's own session", Outcome.GRANTED, Ability.SESSIONS)
async def coming_back(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c", stays=True)
    assert carol is not None and await carol.subscribe("secret/#")
    await carol.leave()
    await scene.tell_everything()
    again = await scene.enter(credentials_of("carol"), "c", stays=True)
    assert again is not None and again.is_known
    return Outcome.GRANTED if ("secret/a", b"live") in await again.heard() else Outcome.UNHEARD


@story("a subscription whose right was taken away", Outcome.UNHEARD, Ability.FILTERS)
async def subscription_after_the_change(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c")
    assert carol is not None and await carol.subscribe("secret/#") and await carol.subscribe("open/+")
    await scene.tell_everything()
    await scene.watch()
    assert ("secret/a", b"live") in scene.heard
    await scene.guarded.change({"carol": NO_SECRETS})
    outcome = await since_the_change(scene)
    assert scene.heard[-1][0].startswith("open/"), "what she still may hear still comes"
    return outcome


@story("a subscription whose right was narrowed", Outcome.UNHEARD, Ability.FILTERS)
async def subscription_after_narrowing(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c")
    assert carol is not None and await carol.subscribe("secret/#")
    await scene.tell_everything()
    await scene.watch()
    await scene.guarded.change({"carol": Rights(("secret/a",), ())})
    outcome = await since_the_change(scene)
    assert await carol.subscribe("secret/a"), "the rest may be asked for"
    return outcome


@story("a shared subscription whose right was taken away", Outcome.UNHEARD, Ability.SHARES)
async def share_after_the_change(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c")
    assert carol is not None and await carol.subscribe("$share/g/secret/#")
    await scene.tell_everything()
    await scene.watch()
    assert ("secret/a", b"live") in scene.heard
    await scene.guarded.change({"carol": NO_SECRETS})
    return await since_the_change(scene)


@story("a kept value whose right was taken away", Outcome.REFUSED, Ability.VALUES)
async def retained_after_the_change(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c")
    assert carol is not None and await carol.subscribe("secret/a")
    assert await carol.heard() == [("secret/a", b"kept")]
    await scene.guarded.change({"carol": NO_SECRETS})
    return Outcome.GRANTED if await carol.subscribe("secret/a") else Outcome.REFUSED


@story("what was owed when the right was taken away", Outcome.UNHEARD, Ability.SESSIONS)
async def owed_after_the_change(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c", stays=True)
    assert carol is not None and await carol.subscribe("secret/#") and await carol.subscribe("open/+")
    await carol.heard()
    await carol.leave()
    await scene.tell_everything()
    await scene.guarded.change({"carol": NO_SECRETS})
    again = await scene.enter(credentials_of("carol"), "c", stays=True)
    assert again is not None and again.is_known
    await scene.watch()
    assert ("open/a", b"live") in scene.heard, "what she still may hear is still owed"
    return await since_the_change(scene)


@story("what was on its way when the right was taken away", Outcome.UNHEARD, Ability.SESSIONS)
async def unacknowledged_after_the_change(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c", stays=True)
    assert isinstance(carol, MqttVisitor) and await carol.subscribe("secret/#")
    await carol.heard()
    await scene.tell_everything()
    assert ("secret/a", b"live") in await carol.hear_without_answering()
    await carol.vanish()
    await scene.guarded.change({"carol": NO_SECRETS})
    again = await scene.enter(credentials_of("carol"), "c", stays=True)
    assert again is not None and again.is_known
    return await since_the_change(scene)


@story("publishing after the right was taken away", Outcome.UNHEARD)
async def publishing_after_the_change(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c")
    assert carol is not None and await carol.publish("secret/a", b"said")
    assert await scene.forged() == [("secret/a", b"said")]
    await scene.guarded.change({"carol": NO_SECRETS})
    await carol.publish("secret/a", b"forged")
    return Outcome.GRANTED if await scene.forged() else Outcome.UNHEARD


@story("an alias that was set before the right was taken away", Outcome.UNHEARD, Ability.ALIASES)
async def alias_after_the_change(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c")
    assert isinstance(carol, MqttVisitor) and await carol.publish("secret/a", b"said", alias=1)
    assert await carol.publish("", b"again", alias=1)
    assert await scene.forged() == [("secret/a", b"said"), ("secret/a", b"again")]
    await scene.guarded.change({"carol": NO_SECRETS})
    await carol.publish("", b"forged", alias=1)
    return Outcome.GRANTED if await scene.forged() else Outcome.UNHEARD


@story("an alias for what one may not publish to", Outcome.UNHEARD, Ability.ALIASES, Where.STRICT)
async def alias_beyond(scene: Scene) -> Outcome:
    mallory = await scene.enter(credentials_of("mallory"), "m")
    assert isinstance(mallory, MqttVisitor)
    await mallory.publish("secret", b"forged", alias=1)
    await mallory.publish("", b"forged", alias=1)
    await mallory.publish("open/a", b"forged", alias=1)
    forged = await scene.forged()
    return Outcome.UNHEARD if forged == [("open/a", b"forged")] else Outcome.GRANTED


@story("a right that was given later", Outcome.GRANTED, Ability.FILTERS)
async def right_given_later(scene: Scene) -> Outcome:
    await scene.guarded.change({"carol": NO_SECRETS})
    carol = await scene.enter(credentials_of("carol"), "c")
    assert carol is not None and not await carol.subscribe("secret/#")
    await carol.publish("secret/a", b"forged")
    assert await scene.forged() == []
    await scene.guarded.change({"carol": RIGHTS["carol"]})
    assert await carol.publish("secret/a", b"said")
    assert await scene.forged() == [("secret/a", b"said")]
    assert await carol.subscribe("secret/#")
    return await since_the_change(scene)


@story("coming back after one was removed", Outcome.TURNED_AWAY)
async def removed_user(scene: Scene) -> Outcome:
    carol = await scene.enter(credentials_of("carol"), "c")
    assert carol is not None
    await scene.guarded.remove("carol")
    again = await scene.enter(credentials_of("carol"), "d")
    return Outcome.TURNED_AWAY if again is None else Outcome.LET_IN


@story("coming back with a password that was changed", Outcome.TURNED_AWAY)
async def changed_password(scene: Scene) -> Outcome:
    assert await scene.enter(credentials_of("carol"), "c") is not None
    scene.guarded.files.change_password("carol", b"another")
    try:
        await scene.guarded.reload()
        again = await scene.enter(credentials_of("carol"), "d")
        assert await scene.enter(Credentials("carol", b"another"), "e") is not None
    finally:
        scene.guarded.files.change_password("carol", password_of("carol"))
    return Outcome.TURNED_AWAY if again is None else Outcome.LET_IN


@story("what the password file holds, as a password", Outcome.TURNED_AWAY, where=Where.STRICT)
async def stored_as_password(scene: Scene) -> Outcome:
    whole = scene.guarded.files.stored("owner").encode()
    for part in (whole, *whole.split(b":"), *whole.split(b"$")):
        if await scene.enter(Credentials("owner", part)) is not None:
            return Outcome.LET_IN
    return Outcome.TURNED_AWAY
