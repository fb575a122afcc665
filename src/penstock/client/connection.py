"""Keeps a client connected: it tries again when the connection goes, and tells how things stand.

Whoever notices first that the connection is gone says so. Then everybody waits for the same next one.
"""

import asyncio
from collections.abc import Callable, Sequence

import grpc

from penstock.client.channels import Channels
from penstock.client.dialect import Dialect
from penstock.client.errors import ConnectionLost, UnknownService, again
from penstock.client.reconnection import Reconnection, is_worth_a_try
from penstock.client.values import ClientState
from penstock.errors import PenstockError

_LOOK_EVERY_S = 0.5

OnState = Callable[[ClientState, PenstockError | None], None]
Choice = Sequence[Callable[[], Dialect]]
"""Makers of dialects, best first."""


class Connection:
    """One client's connection, or the next one.

    Args:
        dialects: what to try; the first one that the server knows is kept.
        timeout_s: how long one attempt may take.
    """

    def __init__(
        self,
        channels: Channels,
        dialects: Choice,
        reconnection: Reconnection,
        timeout_s: float,
        on_state: OnState | None,
    ) -> None:
        self._channels = channels
        self._dialects = dialects
        self._reconnection = reconnection
        self._timeout_s = timeout_s
        self._on_state = on_state
        self._dialect: Dialect | None = None
        self._changed = asyncio.Event()  # one way or the other: connected, or over
        self._task: asyncio.Task[None] | None = None
        self._error: PenstockError | None = None  # why it is over
        self.state = ClientState.DISCONNECTED
        self.number = 0
        """Of the connection of now, or else of the last one; they are counted from 1."""
        self.trouble: PenstockError | None = None
        """Why the last attempt came to nothing."""
        # Of one connection:
        self._channel: grpc.aio.Channel | None = None
        self._lost = asyncio.Event()
        self._reason: PenstockError | None = None

    def open(self) -> None:
        """Begin to connect, if that has not begun."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep())

    async def ready(self) -> tuple[Dialect, int]:
        """The server, when it is there, and the number of the connection to it.

        Raises:
            PenstockError: it will not be, and why.
        """
        while True:
            if self._error is not None:
                raise again(self._error)
            if self.state is ClientState.CONNECTED and self._dialect is not None:
                return self._dialect, self.number
            if self._task is None:
                raise ConnectionLost("the client is not open")
            self._changed.clear()
            await self._changed.wait()

    def lose(self, number: int, error: PenstockError) -> None:
        """A connection turned out to be gone, or of no use; others may have said so already."""
        if number == self.number and self.state is ClientState.CONNECTED:
            self._reason = error
            self._set_state(ClientState.DISCONNECTED, error)
            self._lost.set()

    async def close(self) -> None:
        """Let go of it; who waits gets `ConnectionLost`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._dialect is not None:
            await self._dialect.close()
        await self._give_up_channel()
        was_over = self._error is not None
        self._end(self._error or ConnectionLost("the client was closed"))
        if not was_over and self.state is not ClientState.DISCONNECTED:
            self._set_state(ClientState.DISCONNECTED, None)

    # Keeping it

    async def _keep(self) -> None:
        try:
            attempt = 0
            while True:
                error = self.trouble = await self._try()
                if error is None:
                    attempt = 0
                    error = await self._watch()
                if not is_worth_a_try(error) or not self._reconnection.may_try(attempt):
                    break
                if self.state is not ClientState.DISCONNECTED:
                    self._set_state(ClientState.DISCONNECTED, error)
                await asyncio.sleep(self._reconnection.delay_s(attempt))
                attempt += 1
                self._set_state(ClientState.RECONNECTING, error)
        except PenstockError as final:
            error = final
        except Exception as unforeseen:
            error = PenstockError(f"the client cannot go on: {unforeseen!r}")
        self._end(error)
        self._set_state(ClientState.FAILED, error)
        await self._give_up_channel()

    async def _try(self) -> PenstockError | None:
        """Connect; answer what went wrong, if anything did."""
        self._lost, self._reason = asyncio.Event(), None
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._greet()
        except TimeoutError:
            return ConnectionLost(f"{self._channels.target} does not answer")
        except PenstockError as error:
            return error
        self.number += 1
        self._set_state(ClientState.CONNECTED, None)
        self._changed.set()
        return None

    async def _greet(self) -> None:
        if self._dialect is not None:
            await self._dialect.connect(await self._open_channel(self._dialect))
            return
        for make in self._dialects:
            dialect = make()
            try:
                await dialect.connect(await self._open_channel(dialect))
            except UnknownService:
                await dialect.close()
            else:
                self._dialect = dialect
                return
        raise UnknownService(f"{self._channels.target} answers, and is no server that we know")

    async def _watch(self) -> PenstockError:
        """Wait until the connection is gone; answer why."""
        watching = asyncio.create_task(self._watch_channel())
        try:
            await self._lost.wait()
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            await self._give_up_channel()  # which ends every call that still hopes
        return self._reason or ConnectionLost("the connection is gone")

    async def _watch_channel(self) -> None:
        """Notice that a connection goes on which nobody waits for anything."""
        channel, number = self._channel, self.number
        assert channel is not None
        while True:
            state = channel.get_state(try_to_connect=True)
            if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                self.lose(number, ConnectionLost(f"nobody answers at {self._channels.target}"))
                return
            await asyncio.sleep(_LOOK_EVERY_S)  # to wait for a change of state cannot be taken back

    # Telling

    def _set_state(self, state: ClientState, error: PenstockError | None) -> None:
        self.state = state
        if self._on_state is not None:
            call_back(self._on_state, state, error)

    def _end(self, error: PenstockError) -> None:
        self._error = self._error or error
        self._changed.set()

    async def _open_channel(self, dialect: Dialect) -> grpc.aio.Channel:
        await self._give_up_channel()
        self._channel = self._channels.open(pings_always=dialect.bears_pings)
        return self._channel

    async def _give_up_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def call_back(callback: Callable[..., None], *values: object) -> None:
    """Tell the application; what goes wrong there is told to the loop, and is not ours."""
    try:
        callback(*values)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a callback of a Penstock client failed: {callback!r}", "exception": error}
        )
