"""Contenders of a bench: the brokers that it starts, and those that meet in each contest."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import WrongOption
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
        return _not_empty([self._make(recipe) for recipe in (*ours, *peers)])

    def stop(self) -> None:
        """Stop the brokers of this bench that still run."""
        for broker in self._brokers.values():
            broker.stop()

    def _start(self, ours: Sequence[Recipe], schemes: frozenset[str]) -> list[Contender]:
        peers = [recipe for recipe in self._peers if recipe.scheme in schemes]
        brokers = [self._make(recipe) for recipe in (*ours, *peers)]
        for broker in brokers:
            broker.restart()
        given = [GivenBroker(target) for target in self._targets if target.scheme in schemes]
        return _not_empty([*brokers, *given])

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
