"""Contenders of a bench: the brokers that it starts, and those that meet in each contest."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import BenchError, WrongOption
from bench.peers.broker import Broker, Contender, GivenBroker, make_broker
from bench.peers.recipes import (
    DURABLE_PEERS,
    DURABLE_PENSTOCKS,
    PENSTOCK,
    PENSTOCK_GRPC,
    PENSTOCK_HTTP,
    Recipe,
)
from bench.peers.target import Target
from bench.scenarios import BROKER_SCHEMES, GRPC_SCHEMES, PENSTOCK_HTTP_ONLY, WEBSOCKET_SCHEMES

HOST = re.compile(r"\b[a-z+]+://[^\s/]+")
"""Left out of reasons: raw results are published, and the mirrors of a machine are its own matter."""


class Contenders:
    """All brokers of a bench; each is made once and reused by later contests."""

    def __init__(
        self,
        ours: Sequence[Recipe],
        peers: Sequence[Recipe],
        targets: Sequence[Target],
        folder: Path,
        cpu: int,
        say: Callable[[str], None],
    ) -> None:
        """Start nothing yet.

        Args:
            ours: Penstock, or nothing if it is not to be started.
            targets: brokers that run already.

        Raises:
            WrongOption: two brokers have the same name.
        """
        self._ours = ours
        self._peers = peers
        self._targets = targets
        self._folder = folder
        self._cpu = cpu
        self._say = say
        self._brokers: dict[str, Broker] = {}
        self.left_out: dict[str, str] = {}
        """Peers that cannot be built or started here, with the reason."""
        _check_unique(
            [recipe.name for recipe in (*ours, *peers, *([PENSTOCK_HTTP, PENSTOCK_GRPC] if ours else []))],
            targets,
        )

    def start_brokers(self) -> list[Contender]:
        """Penstock and its peers, started, and the brokers that run already."""
        return self._start(self._ours, BROKER_SCHEMES)

    def start_websocket_servers(self) -> list[Contender]:
        """Servers that accept publishes over WebSocket, likewise."""
        return self._start([PENSTOCK_HTTP] if self._ours else [], WEBSOCKET_SCHEMES)

    def start_stream_servers(self) -> list[Contender]:
        """Servers that have streams, likewise."""
        return self._start([PENSTOCK_HTTP] if self._ours else [], PENSTOCK_HTTP_ONLY)

    def start_grpc_servers(self) -> list[Contender]:
        """Servers that speak gRPC, likewise."""
        return self._start([PENSTOCK_GRPC] if self._ours else [], GRPC_SCHEMES)

    def make_durable_brokers(self) -> list[Contender]:
        """Penstock and its peers with persistence, to be started for each run."""
        ours = [*self._ours, *(DURABLE_PENSTOCKS if self._ours else ())]
        peers = [DURABLE_PEERS[recipe.name] for recipe in self._peers if recipe.name in DURABLE_PEERS]
        return _not_empty([*map(self._make, ours), *self._make_peers(peers)])

    def stop(self) -> None:
        """Stop the brokers of this bench that still run."""
        for broker in self._brokers.values():
            broker.stop()

    def _start(self, ours: Sequence[Recipe], schemes: frozenset[str]) -> list[Contender]:
        peers = [recipe for recipe in self._peers if recipe.scheme in schemes]
        brokers = [self._make(recipe) for recipe in ours]
        for broker in brokers:
            broker.restart()
        brokers += self._make_peers(peers, is_started=True)
        given = [GivenBroker(target) for target in self._targets if target.scheme in schemes]
        return _not_empty([*brokers, *given])

    def _make_peers(self, recipes: Sequence[Recipe], *, is_started: bool = False) -> list[Broker]:
        """Make peers, and start them if wanted; one that cannot be had here is left out with a line."""
        made = []
        for recipe in recipes:
            if recipe.name in self.left_out:
                continue
            try:
                broker = self._make(recipe)
                if is_started:
                    broker.restart()
            except BenchError as error:
                reason = HOST.sub("", " ".join(str(error).split()))
                self.left_out[recipe.name] = reason
                self._say(f"{recipe.name} is left out: {reason}")
            else:
                made.append(broker)
        return made

    def _make(self, recipe: Recipe) -> Broker:
        if recipe.name not in self._brokers:
            self._brokers[recipe.name] = make_broker(recipe, self._folder, self._cpu, self._say)
        return self._brokers[recipe.name]


def _not_empty(contenders: list[Contender]) -> list[Contender]:
    if not contenders:
        raise WrongOption("nothing to measure: no Penstock, no peers, no target")
    return contenders


def _check_unique(names: list[str], targets: Sequence[Target]) -> None:
    for target in targets:
        if target.name in names:
            is_ours = target.name in {PENSTOCK.name, PENSTOCK_HTTP.name, PENSTOCK_GRPC.name}
            hint = "; add --no-penstock" if is_ours else ""
            raise WrongOption(f"two brokers are called {target.name}{hint}")
        names.append(target.name)
