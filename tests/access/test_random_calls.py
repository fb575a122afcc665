"""Random rules, filters and topics through both gRPC services: they decide as the naive model does."""

import asyncio
from itertools import cycle
from random import Random

import pytest

from tests.access.calls import CallEntrance, OwnVisitor, SidecarVisitor
from tests.access.entrances import Credentials
from tests.access.naive import Rights, naive_matches
from tests.access.random_rules import make_filter, make_rights, make_topic
from tests.access.scene import Files, Guarded, Scene, credentials_of
from tests.fuzz.seeds import new_dice
from tests.support.certificates import Authority
from tests.support.servers import StartServer

ROUNDS = 60
FILTERS_A_ROUND = 8
TOPICS_A_ROUND = 12
PATIENCE_S = 30.0
CAROL: Credentials = credentials_of("carol")


@pytest.fixture(scope="module")
def guarded(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    certificate = Authority().issue(tmp_path_factory.mktemp("certificate"), "server").both
    files = Files(tmp_path_factory.mktemp("access"))
    return Guarded(start_server(files.settings(certificate, allow_anonymous=False)), files)


class Judge:
    """Counts what came of it, and compares it with the model."""

    def __init__(self, dice: Random, scene: Scene) -> None:
        self._dice = dice
        self._scene = scene
        self.arrived = 0
        self.granted = 0
        self.refused = 0

    async def judge(self, rights: Rights) -> None:
        """One who has these rights comes, asks for filters, and hears what the owner says."""
        scene, topics = self._scene, self._topics()
        await scene.guarded.change({"carol": rights})
        carol = await scene.enter(CAROL)
        assert isinstance(carol, SidecarVisitor | OwnVisitor)
        await scene.owner.publish_all(topics, b"kept", retain=True)
        filters = [filter for filter in self._filters() if await self._is_granted(carol, filter)]
        await scene.owner.publish_all(topics, b"live")
        meant = {topic for topic in topics if any(naive_matches(filter, topic) for filter in filters)}
        heard: set[str] = set()
        async with asyncio.timeout(PATIENCE_S):
            while True:  # retained values come first, and take turns of their own
                heard |= {topic for topic, payload in await carol.heard() if payload == b"live"}
                if heard >= meant:
                    break
        assert heard == meant, (rights, filters)
        self.arrived += len(heard)
        mine = scene.guarded.rights_of("carol")
        for topic in topics:
            assert await carol.publish(topic, b"said") == mine.may_write(topic, "carol", ""), (rights, topic)
        await scene.watch()
        await carol.leave()

    async def _is_granted(self, carol: SidecarVisitor | OwnVisitor, filter: str) -> bool:
        shared = f"$share/g/{filter}" if self._dice.random() < 0.3 else filter
        is_granted = await carol.subscribe(shared)
        mine = self._scene.guarded.rights_of("carol")
        assert is_granted == mine.may_subscribe(filter, "carol", ""), (mine, shared)
        self.granted += is_granted
        self.refused += not is_granted
        return is_granted

    def _topics(self) -> list[str]:
        made = {make_topic(self._dice): None for _ in range(TOPICS_A_ROUND)}
        return [topic for topic in made if not topic.startswith("$")]

    def _filters(self) -> list[str]:
        return list({make_filter(self._dice): None for _ in range(FILTERS_A_ROUND)})


@pytest.mark.parametrize("visitor", [SidecarVisitor, OwnVisitor], ids=["sidecar", "penstock.v1"])
async def test_calls_read_and_write_what_the_rules_give_and_nothing_else(
    guarded: Guarded, visitor: type[SidecarVisitor | OwnVisitor], scale: int
) -> None:
    dice = new_dice()
    scene = Scene(guarded, CallEntrance(visitor, cycle(("a", "b", "a/a"))))
    await scene.open()
    judge = Judge(dice, scene)
    for _ in range(ROUNDS * scale):
        await judge.judge(make_rights(dice))
    await scene.close()
    assert min(judge.arrived, judge.granted, judge.refused) > ROUNDS // 2
