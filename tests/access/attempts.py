"""The table of attempts: what somebody tries, and what must come of it, at whichever entrance.

An attempt that ends as it should is not enough: after each of them the watchman of the scene looks whether
something was heard or published that must not be. Some rows are allowed, so that a server which refuses
everything does not pass.
"""

from tests.access.attempt import Attempt, Outcome, Where, shown
from tests.access.entrances import NULL, Ability, Credentials
from tests.access.naive import naive_matches
from tests.access.scene import NFC, NFD, REAL_TOPICS, Scene, credentials_of, password_of
from tests.access.stories import STORIES
from tests.access.topics import TOPIC_ATTEMPTS

# Coming in


def coming_in(
    name: str,
    user: str | None,
    password: bytes | None,
    *,
    needs: Ability = Ability.NOTHING,
    where: Where = Where.STRICT,
) -> Attempt:
    async def act(scene: Scene) -> Outcome:
        visitor = await scene.enter(Credentials(user, password))
        if visitor is None:
            return Outcome.TURNED_AWAY
        await visitor.subscribe("secret")
        await scene.tell_everything()
        return Outcome.LET_IN

    return Attempt(name, act, Outcome.TURNED_AWAY, needs, where)


RIGHT = password_of("owner")
ARRIVALS = (
    coming_in("an empty password", "owner", b""),
    coming_in("no password", "owner", None),
    coming_in("a wrong password", "owner", b"guess"),
    coming_in("the password of another", "owner", password_of("mallory")),
    coming_in("half the password", "owner", RIGHT[:-1]),
    coming_in("the password and a null", "owner", RIGHT + b"\0"),
    coming_in("the password and a newline", "owner", RIGHT + b"\n"),
    coming_in("the password in capitals", "owner", RIGHT.upper()),
    coming_in("a password of 65,000 bytes", "owner", RIGHT * 5_416),
    coming_in("a password that is not text", "owner", b"\xff\xfe"),
    coming_in("an unknown user", "nobody", RIGHT),
    coming_in("an unknown user without a password", "nobody", None),
    coming_in("an empty user", "", RIGHT),
    coming_in("an empty user with an empty password", "", b""),
    coming_in("a user of blanks", " ", RIGHT),
    coming_in("a null in the user", f"own{NULL}er", RIGHT),
    coming_in("a null after the user", f"owner{NULL}", RIGHT),
    coming_in("a null before the user", f"{NULL}owner", RIGHT),
    coming_in("a colon after the user", "owner:", RIGHT),
    coming_in("a blank after the user", "owner ", RIGHT),
    coming_in("the user in capitals", "OWNER", RIGHT),
    coming_in("the user in full-width letters", "\uff4fwner", RIGHT, needs=Ability.EXACT_NAMES),
    coming_in(
        "the user in another normal form", "zoe\u0308", password_of("zo\u00eb"), needs=Ability.EXACT_NAMES
    ),
    coming_in("a star for a user", "*", RIGHT),
    coming_in("a comment for a user", "#", RIGHT),
    coming_in("the word for guests as a user", "anonymous", RIGHT),
    coming_in("two lines for a user", "nobody\nowner", RIGHT),
    coming_in("nobody at all", None, None),
    coming_in("a password alone", None, RIGHT, needs=Ability.LONE_PASSWORD),
    coming_in("a wrong password where guests may come", "owner", b"guess", where=Where.GUESTS),
    coming_in("no password where guests may come", "owner", None, where=Where.GUESTS),
    coming_in("an unknown user where guests may come", "nobody", b"guess", where=Where.GUESTS),
    coming_in("an empty user where guests may come", "", b"", where=Where.GUESTS),
)


def is_own(name: str) -> bool:
    """Whether the rules for everyone give this by the client id."""
    return name.startswith("own/") or name.endswith("/box")


# Reading


def reading(
    filter: str,
    user: str | None = "mallory",
    client_id: str = "m",
    *,
    outcome: Outcome = Outcome.REFUSED,
    where: Where = Where.STRICT,
) -> Attempt:
    async def act(scene: Scene) -> Outcome:
        credentials = Credentials() if user is None else credentials_of(user)
        visitor = await scene.enter(credentials, client_id)
        assert visitor is not None
        is_granted = await visitor.subscribe(filter)
        await scene.tell_everything()
        await scene.watch()
        inner = filter.split("/", 2)[2] if filter.startswith("$share/") and is_granted else filter
        meant = {topic for topic in REAL_TOPICS if is_granted and naive_matches(inner, topic)}
        live = {topic for topic, payload in scene.heard if payload == b"live"}
        assert live == meant, "what was granted is also heard"
        return Outcome.GRANTED if is_granted else Outcome.REFUSED

    needs = Ability.SHARES if filter.startswith("$share/") else Ability.NOTHING
    if outcome is Outcome.GRANTED and set(filter) & {"+", "#"}:
        needs |= Ability.FILTERS
    if client_id != "m" or (outcome is Outcome.GRANTED and is_own(filter)):
        needs |= Ability.CLIENT_IDS
    name = f"reading {shown(filter)} as {shown(user)} {shown(client_id)}"
    return Attempt(name, act, outcome, needs, where)


BEYOND = (
    *("#", "+", "+/#", "+/+", "+/a", "/#", "/+", "/+/#", "+/+/#", "//", "//#", "..", "../#", "/"),
    *(
        "open",
        "open/#",
        "open/+/#",
        "open/+/+",
        "open/a/#",
        "open/a/b",
        "open/a/",
        "open/../secret",
        "/open/+",
    ),
    *("OPEN/+", "Open/a", "open /a", "+/a/b", "ope\uff4e/+", "open\u200b/+", "\ufeffopen/+", "\u043epen/+"),
    *("secret", "secret/#", "secret/+", "+/secret", "/secret", "../secret", "secret/../open/a"),
    *(f"{NFD}/news", "CAFÉ/news", f"{NFC}/+", f"{NFC}/#", f"{NFC}/news/#", "+/news"),
    *("own/#", "own/+/+", "own/+/m", "own/mallory/+", "own/mallory/#", "own/mallory/other", "own/owner/o"),
    *(
        "own/mallory",
        "own/mallory/m/#",
        "own/%u/%c",
        "%c/box",
        "+/box",
        "secret/box",
        "mallory/box",
        "public/+",
    ),
    *("$SYS/#", "$SYS/+", "$SYS", "$penstock/#", "$penstock/drops", "$share", "$share/g", "$x/#", "$/#"),
    *(
        "$share/g/secret",
        "$share/g/#",
        "$share/g/+",
        "$share/g/open/#",
        "$share/g/open/a/b",
        "$share//secret",
    ),
    *("$share/+/secret", "$share/#", "$share/g/", "$share/g//secret", "$share/g/$SYS/#", "$share/open/a"),
    *("$share/g/$share/h/secret", "$share/g/$share/h/#", "$SHARE/g/secret", "$share/own/mallory/m"),
    *("secret/" + "+/" * 60 + "#", "+/" * 126 + "#", "+/" * 1_000 + "#", "/" * 4_000, "/" * 60_000),
    *("x" * 4_096, "x" * 65_535, "open/" + "x" * 65_530, "+/" * 32_767 + "+", "secret" + "/" * 65_529),
    *(f"secret{NULL}", f"open/{NULL}", "open/a+", "open/#/secret", "#/secret", "open/+#", ""),
)
WITHIN = (
    *("open/+", "open/a", "open/..", "open/", "open/%u", "open/$SYS", "open/" + "x" * 4_091),
    *(f"{NFC}/news", f"open/{NFD}", "own/mallory/m", "m/box"),
    *(
        "$share/g/open/+",
        "$share/g/open/a",
        f"$share/{NFC}/{NFC}/news",
        "$share/$SYS/open/a",
        "$share/ /open/a",
    ),
)
READINGS = (
    *(reading(filter) for filter in BEYOND),
    *(reading(filter, outcome=Outcome.GRANTED) for filter in WITHIN),
    # Client ids and user names that would like to be more than names.
    *(reading("own/mallory/other", client_id=trick) for trick in ("+", "#", "other/", "../other", "")),
    *(reading(f"own/mallory/{trick}", client_id=trick) for trick in ("+", "#", "a/b", "m/x", "/")),
    *(
        reading(f"{trick}/box", client_id=trick)
        for trick in ("+", "#", "$SYS", "$penstock", "a/b", "$share/g")
    ),
    *(reading("$SYS/#", client_id=trick) for trick in ("$SYS", "$SYS/", "#")),
    reading("own/mallory/%u", client_id="%u", outcome=Outcome.GRANTED),
    reading("own/mallory/mallory", client_id="%u"),
    reading("own/mallory/..", client_id="..", outcome=Outcome.GRANTED),
    reading("secret/box", client_id="secret", outcome=Outcome.GRANTED),  # as the rule says
    reading("secret", client_id="secret"),
    *(reading(filter, "+") for filter in ("own/+/m", "own/mallory/m", "own/owner/m", "own/#", "open/+")),
    *(reading(filter, "a/b") for filter in ("own/a/b/m", "own/a/b", "own/a/+")),
    *(reading(filter, "$SYS") for filter in ("$SYS/#", "$SYS", "secret")),
    reading("own/$SYS/m", "$SYS", outcome=Outcome.GRANTED),
    *(reading(filter, "%c") for filter in ("own/m/m", "own/mallory/m")),
    reading("own/%c/m", "%c", outcome=Outcome.GRANTED),
    # Guests
    *(
        reading(filter, None, client_id, where=Where.GUESTS)
        for filter, client_id in (
            *(
                ("#", "m"),
                ("secret", "m"),
                ("public/#", "m"),
                ("own//m", "m"),
                ("own/%u/%c", "m"),
                ("m/box", "m"),
            ),
            *(("open/+", "mallory"), ("own/owner/o", "o"), ("owner/box", "owner"), ("$SYS/#", "$SYS")),
        )
    ),
    reading("public/+", None, where=Where.GUESTS, outcome=Outcome.GRANTED),
    reading("$share/g/public/a", None, where=Where.GUESTS, outcome=Outcome.GRANTED),
)


# Writing


def writing(
    topic: str,
    user: str | None = "mallory",
    client_id: str = "m",
    *,
    retain: bool = False,
    outcome: Outcome = Outcome.UNHEARD,
    where: Where = Where.STRICT,
) -> Attempt:
    """MQTT 3.1.1 cannot say no, so what counts is whether anybody hears it."""

    async def act(scene: Scene) -> Outcome:
        visitor = await scene.enter(Credentials() if user is None else credentials_of(user), client_id)
        assert visitor is not None
        is_taken = await visitor.publish(topic, b"forged", retain=retain)
        forged = await scene.forged()
        assert forged in ([], [(topic, b"forged")])
        if forged:
            rights = scene.guarded.rights_of(user)
            assert is_taken and rights.may_write(topic, user or "", client_id)
        return Outcome.GRANTED if forged else Outcome.UNHEARD

    has_client_id = client_id != "m" or (outcome is Outcome.GRANTED and is_own(topic))
    needs = Ability.CLIENT_IDS if has_client_id else Ability.NOTHING
    how = "keeping a value at" if retain else "publishing to"
    name = f"{how} {shown(topic)} as {shown(user)} {shown(client_id)}"
    return Attempt(name, act, outcome, needs, where)


WRITINGS = (
    *(
        writing(topic)
        for topic in (
            *("open", "open/a/b", "open/a/", "/open/a", "OPEN/a", "open /a", "ope\uff4e/a", "\ufeffopen/a"),
            *("secret", "secret/a", "/secret", "//", "..", "open/../secret", f"{NFD}/news", "public/a"),
            *(
                "own/mallory/other",
                "own/owner/o",
                "own/%u/%c",
                "own/mallory/m/x",
                "mallory/box",
                "secret/box",
            ),
            *("$SYS/x", "$SYS", "$penstock/drops", "$share/g/open/a", "$share/g/secret", "$x/y", "$"),
            *("$penstock/insights/hot/10s", "$penstock/insights", "$penstock/insights/"),
            *("#", "+", "open/+", "open/#", "+/a", "own/+/m", "", f"open/{NULL}", f"secret{NULL}"),
            *("open/" + "x" * 65_530, "secret" + "/" * 4_000, "secret" + "/" * 200, "x" * 65_535),
        )
    ),
    *(writing(topic, retain=True) for topic in ("secret", "open/a/b", "$SYS/x", "own/owner/o")),
    *(writing(f"own/mallory/{trick}", client_id=trick) for trick in ("a/b", "m/x", "/")),
    *(writing(f"{trick}/box", client_id=trick) for trick in ("$SYS", "$penstock", "a/b", "$share/g")),
    *(writing("own/mallory/other", client_id=trick) for trick in ("+", "#", "")),
    *(writing(topic, "+") for topic in ("own/mallory/m", "own/owner/m", "own/+/m")),
    *(writing(topic, "$SYS") for topic in ("$SYS", "$SYS/x")),
    *(
        writing(topic, None, where=Where.GUESTS)
        for topic in ("secret", "public/a/b", "own//m", "m/box", "open/a")
    ),
    *(
        writing(topic, outcome=Outcome.GRANTED)
        for topic in ("open/a", "open/..", f"{NFC}/news", "own/mallory/m")
    ),
    writing("open/kept", retain=True, outcome=Outcome.GRANTED),
    writing("public/a", None, where=Where.GUESTS, outcome=Outcome.GRANTED),
)


ATTEMPTS: tuple[Attempt, ...] = (*ARRIVALS, *READINGS, *WRITINGS, *STORIES, *TOPIC_ATTEMPTS)
