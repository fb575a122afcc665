"""Where attempts are made: a server with secrets, its owner, and a watchman who looks at what became of it.

The watchman does not ask the server who may do what, but the naive model. After every attempt nobody has
heard what he may not read, and the owner, who hears everything, has heard nothing from who may not write.
"""

import asyncio
import json
import signal
from collections.abc import Mapping
from pathlib import Path

from argon2 import PasswordHasher

from penstock.common.scram import FEWEST_ITERATIONS, make_keys
from penstock.core.access.passwords import encode_keys
from penstock.wire.mqtt import Version
from tests.access.entrances import (
    Credentials,
    Entrance,
    Heard,
    MqttEntrance,
    MqttVisitor,
    Prying,
    Visitor,
)
from tests.access.naive import Rights
from tests.support.servers import RunningServer, Settings
from tests.support.waiting import TIMEOUT_S, until

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
OWNERS_ID = "a client id that nobody guesses"
DROPS = "$penstock/drops"
NEWS_EVERY_MS = 50
RELOADED = "access files reloaded"
FOREIGN = (b"forged", b"said", b"again")
"""What others than the owner say."""

NFC, NFD = "caf\u00e9", "cafe\u0301"
TOPICS = (
    *("open", "open/a", "open/a/", "open/a/b", "open/..", "open/../secret", "/open/a", "//open/a", "OPEN/a"),
    *("open /a", "ope\uff4e/a", "open\u200b/a", "\ufeffopen/a", "\u043epen/a"),
    *("secret", "secret/a", "secret/a/b/c", "/secret", "/", "//", "..", "../secret", "secret/box", "box"),
    *(f"{NFC}/news", f"{NFD}/news", "CAFÉ/news"),
    *("own", "own/mallory", "own/mallory/m", "own/mallory/other", "own/mallory/+", "own/owner/o", "own/m/m"),
    *(
        "own/mallory/m/x",
        "own/+/m",
        "own/%u/%c",
        "own/%c/m",
        "own/a/b/m",
        "own/mallory/a/b",
        "own/mallory/..",
    ),
    *("public/a", "public/a/b", "share/g/open/a", "m/box", "%c/box", "mallory/box"),
)
"""Where there is something to read. The model says who may."""
REAL_TOPICS = tuple(topic for topic in TOPICS if not set(topic) & {"+", "#"})

EVERYONE = Rights(("own/%u/%c", "%c/box"), ("own/%u/%c", "%c/box"))
GUESTS = Rights(("public/+",), ("public/+",))
RIGHTS: dict[str, Rights] = {
    "owner": Rights(("#", "$SYS/#", "$penstock/#", "$x/#"), ("#",)),
    "mallory": Rights(("open/+", f"{NFC}/news"), ("open/+", f"{NFC}/news")),
    "victim": Rights(("secret/#",), ("secret/#",)),
    "carol": Rights(("open/+", "secret/#"), ("open/+", "secret/#")),
    "+": Rights(),
    "a/b": Rights(),
    "$SYS": Rights(),
    "%c": Rights(),
    "zo\u00eb": Rights(),
}


def password_of(user: str) -> bytes:
    return f"{user} knows".encode()


def credentials_of(user: str) -> Credentials:
    return Credentials(user, password_of(user))


def stored(password: bytes) -> str:
    """What the password file holds behind a name: for plain passwords, and for SCRAM."""
    return f"{QUICK.hash(password)}:{encode_keys(make_keys(password.decode(), FEWEST_ITERATIONS))}"


class Files:
    """The password file and the access list of a server."""

    def __init__(self, folder: Path) -> None:
        self._passwords = folder / "passwords"
        self._acl = folder / "acl"
        self._stored = {user: stored(password_of(user)) for user in RIGHTS}
        self.write(RIGHTS)

    def stored(self, user: str) -> str:
        """What the password file holds for a user."""
        return self._stored[user]

    def write(self, rights: Mapping[str, Rights], locked_out: str | None = None) -> None:
        """Give these users a password and these rights; others have neither.

        Args:
            locked_out: who has rights all the same, and no password.
        """
        users = [f"{user}:{self._stored[user]}" for user in rights if user != locked_out]
        self._passwords.write_text("\n".join(users), encoding="utf-8")
        rules = ["anonymous", *GUESTS.lines(), "user *", *EVERYONE.lines()]
        for user, mine in rights.items():
            rules += [f"user {user}", *mine.lines()]
        self._acl.write_text("\n".join(rules), encoding="utf-8")

    def change_password(self, user: str, password: bytes) -> None:
        """Let another password be the right one, from the next `write` on."""
        self._stored[user] = stored(password)

    def settings(self, certificate: str, *, allow_anonymous: bool) -> Settings:
        """What a server has to be told to use them, and to open every port there is."""
        files = {"password_file": str(self._passwords), "acl_file": str(self._acl)}
        return {
            "access": {**files, "allow_anonymous": allow_anonymous},
            "mqtt": {"tls_port": 0, "websocket_port": 0, "websocket_tls_port": 0},
            "sidecar": {"tls_port": 0},
            "tls": {"certificate_file": certificate},
            "reaper_interval_ms": NEWS_EVERY_MS,
        }


class Guarded:
    """A server, its files, and what they say at the moment."""

    def __init__(self, server: RunningServer, files: Files) -> None:
        self.server = server
        self.files = files
        self.rights: dict[str, Rights] = dict(RIGHTS)
        self.has_values = False

    async def change(self, rights: Mapping[str, Rights]) -> None:
        """Let users have other rights, those who are not named keep theirs; all of it from now on."""
        self.rights = {**self.rights, **rights}
        await self.reload()

    async def remove(self, user: str) -> None:
        """Let there be no such user."""
        del self.rights[user]
        await self.reload()

    async def reload(self, locked_out: str | None = None) -> None:
        """Make the server read its files again; one user may have no password in them."""
        self.files.write(self.rights, locked_out)
        times = self.server.logged.count(RELOADED)
        self.server.process.send_signal(signal.SIGHUP)
        await until(lambda: self.server.logged.count(RELOADED) != times, "no reload was logged")

    def rights_of(self, user: str | None) -> Rights:
        """What somebody may do now, by the rules for everyone and by his own."""
        if user is None:
            return GUESTS
        own = self.rights.get(user, Rights())
        return Rights(EVERYONE.read + own.read, EVERYONE.write + own.write)


class Scene:
    """One attempt at one entrance of one server."""

    def __init__(self, guarded: Guarded, entrance: Entrance) -> None:
        self.guarded = guarded
        self.entrance = entrance
        self._reference = MqttEntrance(Version.V5)  # how the owner comes in, whatever is attempted
        self._visitors: list[tuple[Visitor, str | None, str]] = []
        self.owner: MqttVisitor
        self.heard: list[Heard] = []
        """Everything that intruders ever heard."""

    async def open(self) -> None:
        """The owner comes, listens to everything, and leaves values for whoever may read them."""
        self.owner = await self.trusted("owner", OWNERS_ID)
        for filter in RIGHTS["owner"].read:
            assert await self.owner.subscribe(filter)
        if not self.guarded.has_values:
            self.guarded.has_values = await self.owner.publish_all(REAL_TOPICS, b"kept", retain=True)
            assert self.guarded.has_values
        await self.owner.heard()

    async def trusted(self, user: str, client_id: str = "", *, stays: bool = False) -> MqttVisitor:
        """Somebody who does nothing wrong, by the way that is known to work."""
        server = self.guarded.server
        visitor = await self._reference.enter(server, credentials_of(user), client_id, stays=stays)
        assert visitor is not None
        return visitor

    async def enter(
        self,
        credentials: Credentials,
        client_id: str = "",
        *,
        will: Heard | None = None,
        stays: bool = False,
    ) -> Visitor | None:
        """Try to come in; whoever does is watched."""
        server = self.guarded.server
        visitor = await self.entrance.enter(server, credentials, client_id, will=will, stays=stays)
        if visitor is not None:
            self._visitors.append((visitor, credentials.user, client_id))
        return visitor

    async def is_published(self, topic: str) -> bool:
        """Wait until the owner hears a message to this topic, or that the server did not publish one."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for where, payload in await self.owner.heard():
                    if where == topic:
                        return True
                    if where == DROPS and any(row["topic"] == topic for row in json.loads(payload)):
                        return False
                await asyncio.sleep(NEWS_EVERY_MS / 1000)

    async def tell_everything(self) -> None:
        """The owner publishes to every topic; whoever may read one of them hears it."""
        assert await self.owner.publish_all(REAL_TOPICS, b"live")

    async def watch(self) -> None:
        """Look at what was heard since the last time, with the rights as they are now."""
        for visitor, user, client_id in self._visitors:
            rights, heard = self.guarded.rights_of(user), await visitor.heard()
            found = [*heard, *(await visitor.pry() if isinstance(visitor, Prying) else ())]
            stolen = [one for one in found if not rights.may_read(one[0], user or "", client_id)]
            assert stolen == [], f"{user!r} as {client_id!r} may not read this: {stolen}"
            self.heard += heard

    async def forged(self) -> list[Heard]:
        """What the owner heard since the last time that was neither his own nor the server's."""
        return [heard for heard in await self.owner.heard() if heard[1] in FOREIGN]

    async def close(self) -> None:
        await self.entrance.close()
        await self._reference.close()
