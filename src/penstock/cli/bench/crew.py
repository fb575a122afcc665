"""Who takes part in a bench: which brokers are made for it, and which of them meet."""

from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.cli.bench.brokers import Broker, Contender, Standing, make_broker
from penstock.cli.bench.peers import (
    PENSTOCK,
    PENSTOCK_GRPC,
    PENSTOCK_HTTP,
    SAVING_PEERS,
    SAVING_PENSTOCKS,
    Recipe,
)
from penstock.cli.bench.problems import WrongOption
from penstock.cli.bench.scenarios import ANY, HTTP_ONLY, SIDECARS, SOCKETS_OF_ANY
from penstock.cli.bench.targets import Target


class Crew:
    """The brokers of a bench."""

    def __init__(
        self,
        ours: Sequence[Recipe],
        peers: Sequence[Recipe],
        targets: Sequence[Target],
        folder: Path,
        cpu: int,
        say: Callable[[str], None],
    ) -> None:
        """Nobody is started yet.

        Args:
            ours: Penstock, or nobody if it is not to be started.
            targets: brokers that run already.
        """
        self._ours = ours
        self._peers = peers
        self._targets = targets
        self._folder = folder
        self._cpu = cpu
        self._say = say
        self._brokers: dict[str, Broker] = {}
        _refuse_twins(
            [recipe.name for recipe in (*ours, *peers, *([PENSTOCK_HTTP, PENSTOCK_GRPC] if ours else []))],
            targets,
        )

    def peers(self) -> list[Contender]:
        """Penstock and its peers, started, and the brokers that run already."""
        return self._started(self._ours, ANY)

    def socket_servers(self) -> list[Contender]:
        """Those to which one can publish over WebSockets, likewise."""
        return self._started([PENSTOCK_HTTP] if self._ours else [], SOCKETS_OF_ANY)

    def stream_servers(self) -> list[Contender]:
        """Those that have streams, likewise."""
        return self._started([PENSTOCK_HTTP] if self._ours else [], HTTP_ONLY)

    def sidecars(self) -> list[Contender]:
        """Those that speak gRPC, likewise."""
        return self._started([PENSTOCK_GRPC] if self._ours else [], SIDECARS)

    def _started(self, ours: Sequence[Recipe], schemes: frozenset[str]) -> list[Contender]:
        peers = [recipe for recipe in self._peers if recipe.scheme in schemes]
        brokers = [self._make(recipe) for recipe in (*ours, *peers)]
        for broker in brokers:
            broker.restart()
        standing = [Standing(target) for target in self._targets if target.scheme in schemes]
        return _not_empty([*brokers, *standing])

    def savers(self) -> list[Contender]:
        """Penstock and those that save, each to be started for a run."""
        ours = [*self._ours, *(SAVING_PENSTOCKS if self._ours else ())]
        peers = [SAVING_PEERS[recipe.name] for recipe in self._peers if recipe.name in SAVING_PEERS]
        return _not_empty([self._make(recipe) for recipe in (*ours, *peers)])

    def _make(self, recipe: Recipe) -> Broker:
        if recipe.name not in self._brokers:
            self._brokers[recipe.name] = make_broker(recipe, self._folder, self._cpu, self._say)
        return self._brokers[recipe.name]

    def dismiss(self) -> None:
        """Stop those of ours that still run."""
        for broker in self._brokers.values():
            broker.stop()


def _not_empty(contenders: list[Contender]) -> list[Contender]:
    if not contenders:
        raise WrongOption("nothing to measure: no Penstock, no peers, no target")
    return contenders


def _refuse_twins(names: list[str], targets: Sequence[Target]) -> None:
    for target in targets:
        if target.name in names:
            is_ours = target.name in {PENSTOCK.name, PENSTOCK_HTTP.name, PENSTOCK_GRPC.name}
            hint = "; add --no-penstock" if is_ours else ""
            raise WrongOption(f"two brokers are called {target.name}{hint}")
        names.append(target.name)
