"""Every attempt of the table at every entrance: nothing is read or written that the rules do not give."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from itertools import cycle

import pytest

from tests.access.attempt import Attempt, Outcome, Where
from tests.access.attempts import ARRIVALS, ATTEMPTS
from tests.access.calls import CallEntrance, OwnVisitor, SidecarVisitor
from tests.access.entrances import ENTRANCES, Entrance
from tests.access.events import EventsEntrance
from tests.access.long_polls import StreamEntrance
from tests.access.scene import REAL_TOPICS, RIGHTS, Files, Guarded, Scene
from tests.access.sockets import SocketEntrance
from tests.access.stories import STORIES
from tests.access.topics import TOPIC_ATTEMPTS
from tests.access.web import HttpEntrance
from tests.support.certificates import Authority
from tests.support.servers import StartServer

THOROUGH = ("mqtt-3.1.1-tcp", "mqtt-5.0-tcp")
"""Where every attempt is made every time."""


WEB, STREAMS, EVENTS, SOCKET = "http", "streams", "events", "ws"
SIDECAR, OWN = "sidecar", "penstock.v1-tls"
PLACES = cycle(topic for topic in REAL_TOPICS if ".." not in topic.split("/"))  # clients go up by that
WAYS: dict[str, Callable[[], Entrance]] = {
    **ENTRANCES,
    WEB: lambda: HttpEntrance(PLACES),
    STREAMS: lambda: StreamEntrance(PLACES),
    EVENTS: EventsEntrance,
    SOCKET: SocketEntrance,
    SIDECAR: lambda: CallEntrance(SidecarVisitor, PLACES),
    OWN: lambda: CallEntrance(OwnVisitor, PLACES, scheme="grpcs", in_words=True),
}
"""Every way in by which attempts are made."""

Guard = Callable[[Where, bool], Guarded]
"""The server of a place; one with a log, if it is asked over HTTP."""


@pytest.fixture(scope="module")
def guard(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Guard:
    """The servers that attempts are made at, each started with the first of them."""
    certificate = Authority().issue(tmp_path_factory.mktemp("certificate"), "server").both

    @cache
    def guard(where: Where, has_log: bool) -> Guarded:
        folder = tmp_path_factory.mktemp("access")
        files = Files(folder)
        settings = {**files.settings(certificate, allow_anonymous=where is Where.GUESTS)}
        settings["web"] = {"explicit_topics": False}  # what is refused is refused for want of rights,
        settings["connections"] = {"failures_per_address": 0}  # and not because so many come from here
        if has_log:
            settings |= {"http": {"port": 0, "tls_port": None}, "data_dir": str(folder / "data")}
        return Guarded(start_server(settings), files)

    return guard


@pytest.fixture
async def scene(guard: Guard, attempt: Attempt, entrance: str) -> AsyncIterator[Scene]:
    here = guard(attempt.where, entrance in (WEB, STREAMS, EVENTS, SOCKET))
    if attempt.where is Where.CHANGING:
        here.rights = dict(RIGHTS)
        await here.reload()
    scene = Scene(here, WAYS[entrance]())
    await scene.open()
    yield scene
    await scene.close()


def pairs() -> Iterator[tuple[str, Attempt]]:
    """Every attempt at every entrance that has what it needs, and some of them, unless it is a soak.

    Once they are in, those who came by another way to the same door are served by the same code.
    """
    is_soak = "PENSTOCK_SOAK" in os.environ
    for entrance, make in WAYS.items():
        abilities = make().abilities
        for number, attempt in enumerate(ATTEMPTS):
            is_short = attempt in (*ARRIVALS, *STORIES, *TOPIC_ATTEMPTS)
            is_tried = is_soak or entrance in THOROUGH or is_short or not number % 10
            if is_tried and not attempt.needs & ~abilities:
                yield entrance, attempt


@pytest.mark.parametrize(
    ("entrance", "attempt"),
    [pytest.param(entrance, attempt, id=f"{entrance}-{attempt}") for entrance, attempt in pairs()],
)
async def test_attempt_ends_as_it_must(attempt: Attempt, scene: Scene) -> None:
    outcome = await attempt.act(scene)
    await scene.watch()
    assert outcome is attempt.outcome


def test_every_row_has_a_name_of_its_own() -> None:
    names = [attempt.name for attempt in ATTEMPTS]
    assert sorted(set(names)) == sorted(names)


def test_every_outcome_is_tried() -> None:
    """A server that refuses everything must not pass, nor one that allows it."""
    assert {attempt.outcome for attempt in ATTEMPTS} >= set(Outcome) - {Outcome.LET_IN}
