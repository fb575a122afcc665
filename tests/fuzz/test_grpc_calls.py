"""Messages that no client should send, to every method: each call gets a status, and nobody else notices."""

import asyncio
from collections import Counter
from random import Random

import pytest

from penstock.wire.grpc import Status
from penstock.wire.sidecar.messages import nexusd, penstock
from tests.access.channels import Channel, Conversation
from tests.faults.watching import MIB, Costs, Witness
from tests.fuzz.grpc_messages import OWN, REQUESTS, SIDECAR, MessageMaker
from tests.support.servers import RunningServer, StartServer

AT_ONCE = 40
MOST_LEARNED = 50
OUR_FAULT = "internal"
"""What the text of a status begins with if a method was not prepared for what came."""
METADATA = (
    *((), (), (), ((b"x-something", b"else"),), ((b"x-bin", b"!!!"),), ((b"x-bin", b"AA, AQ"),)),
    *(
        ((b"grpc-timeout", value),)
        for value in (b"1n", b"0S", b"5m", b"99999999H", b"-1S", b"1", b"", b"123456789S")
    ),
    *(((b"grpc-encoding", value),) for value in (b"gzip", b"identity", b"deflate", b"")),
    *(((b"authorization", value),) for value in (b"Basic", b"Basic !!", b"Basic YTpi", b"Bearer a:b", b"")),
    ((b"username", b"a"),),
)


@pytest.fixture(scope="module")
def victim(start_server: StartServer) -> RunningServer:
    """A server without much room, so that limits are reached."""
    return start_server(
        {
            "sidecar": {"paused_ttl_ms": 2_000, "max_paused": 200},
            "outbox": {"messages": 200},
        }
    )


class Caller:
    """Makes calls at random on one connection after another."""

    def __init__(self, dice: Random, port: int) -> None:
        self._dice = dice
        self._port = port
        self._learned: list[str] = []
        self._maker = MessageMaker(dice, self._learned)
        self.endings: Counter[tuple[str, Status]] = Counter()

    async def call_often(self, count: int) -> None:
        for _ in range(count // AT_ONCE):
            channel = await Channel.open(self._port)
            async with asyncio.TaskGroup() as calls:
                for _ in range(AT_ONCE):
                    calls.create_task(self._call(channel))
            assert not channel.is_lost, "a bad message is no bad connection"
            channel.close()

    async def _call(self, channel: Channel) -> None:
        dice = self._dice
        path, kind = dice.choice(list(REQUESTS.items()))
        messages = [self._maker.make(kind) for _ in range(dice.choice((1, 1, 1, 2, 4)))]
        is_last = dice.random() < 0.7
        call = channel.call(path, dice.choice(METADATA), *messages, is_last=is_last)
        if not is_last and dice.random() < 0.3:
            call.send_as_it_is(dice.randbytes(dice.randrange(12)))
        for _ in range(dice.randrange(4)):
            self._learn(path, await self._patiently(call))
        if call.status is None:
            call.cancel()
        self.endings[path, call.status or Status.OK] += 1
        assert not call.text.startswith(OUR_FAULT), (path, messages)
        assert call.status is not Status.UNKNOWN, (path, messages)

    async def _patiently(self, call: Conversation) -> bytes:
        """The next message, if it comes soon."""
        for _ in range(self._dice.randrange(12)):
            if call.has_news:
                return await call.take() or b""
            await asyncio.sleep(0.001)
        return b""

    def _learn(self, path: str, answer: bytes) -> None:
        """Keep what the server gives out, to use it for what it is not meant for."""
        texts: tuple[str, ...] = ()
        if path in (f"{SIDECAR}Subscribe", f"{SIDECAR}ResumeSubscribe"):
            event = nexusd.MessageEvent.FromString(answer)
            texts = (event.subscription_info.subscription_id, event.message.message_id)
        elif path == f"{OWN}Subscribe":
            said = penstock.SubscribeEvent.FromString(answer)
            texts = (said.opened.cursor, said.opened.session_id, said.delivery.cursor)
        self._learned += [text for text in texts if text]
        del self._learned[:-MOST_LEARNED]


async def test_random_messages_get_a_status_and_harm_nobody(
    victim: RunningServer, dice: Random, scale: int
) -> None:
    caller = Caller(dice, victim.port_of("grpc"))
    before = Costs(victim)
    await caller.call_often(20 * AT_ONCE)  # what is made once is made now
    await before.are_back()
    costs = Costs(victim)
    async with Witness(victim):
        await caller.call_often(100 * AT_ONCE * scale)
    await costs.are_back()
    assert costs.more_bytes < 40 * MIB
    assert {path for path, _ in caller.endings} == set(REQUESTS)
    statuses = {status for _, status in caller.endings}
    assert statuses >= {Status.OK, Status.INVALID_ARGUMENT, Status.NOT_FOUND, Status.UNAUTHENTICATED}
