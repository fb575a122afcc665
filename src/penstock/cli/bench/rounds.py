"""The order of measurements: all brokers in turn, so that a ratio compares runs made seconds apart."""

import resource
import shutil
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from penstock.cli.bench.brokers import Contender
from penstock.cli.bench.load import LoadGenerator
from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.scenarios import CONNECTIONS, SAVING, Scenario
from penstock.cli.bench.trials.site import Site

Measurements = dict[str, dict[str, list[Measurement]]]
"""By scenario, then by broker, in the order they were made."""

PAUSE_S = 0.1  # a broker tears down one run's connections before the next broker is measured on its core
FILES_NEEDED = CONNECTIONS + 600

OnMeasured = Callable[[Scenario, int, str, Measurement], None]


def run_rounds(
    scenarios: Sequence[Scenario],
    contenders: Sequence[Contender],
    generator: LoadGenerator,
    repeat: int,
    on_measured: OnMeasured,
) -> Measurements:
    """Measure every scenario on every broker that speaks it; fresh-process scenarios after all others."""
    measurements: Measurements = {scenario.name: {} for scenario in scenarios}
    for are_fresh in (False, True):
        for number in range(repeat):
            for scenario in scenarios:
                if scenario.is_fresh is not are_fresh:
                    continue
                for contender in _rotated(contenders, number):
                    if contender.target.scheme not in scenario.schemes:
                        continue
                    found = _measure(scenario, contender, generator)
                    name = contender.target.name
                    measurements[scenario.name].setdefault(name, []).append(found)
                    on_measured(scenario, number, name, found)
                    time.sleep(PAUSE_S)
    return measurements


def _rotated(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """Another broker begins in each round, so that no one always follows the same neighbour's teardown."""
    first = number % len(contenders)
    return [*contenders[first:], *contenders[:first]]


def _measure(scenario: Scenario, contender: Contender, generator: LoadGenerator) -> Measurement:
    if scenario.is_fresh:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed < FILES_NEEDED:
            return Measurement(error=f"needs ulimit -n {FILES_NEEDED}, has {allowed}")
        contender.restart()
    try:
        return generator.measure(scenario, contender.target)
    finally:
        if scenario.contest is SAVING:  # who tidies up its disk afterwards would disturb the next
            contender.stop()


def run_trials(
    scenarios: Sequence[Scenario], name: str, site: Site, repeat: int, on_measured: OnMeasured
) -> Measurements:
    """Do what needs no load generator, each in a folder of its own."""
    from penstock.cli.bench.trials.table import TRIALS  # noqa: PLC0415 - needs the extra `log`

    measurements: Measurements = {}
    for scenario in scenarios:
        runs = measurements[scenario.name] = {name: []}
        folder = site.folder / scenario.name
        folder.mkdir()
        trial = TRIALS[scenario.name](replace(site, folder=folder), repeat)
        try:
            for number, found in enumerate(trial):
                runs[name].append(found)
                on_measured(scenario, number, name, found)
        except BenchError as error:
            runs[name].append(Measurement(error=str(error)))
            on_measured(scenario, len(runs[name]) - 1, name, runs[name][-1])
        finally:
            shutil.rmtree(folder)
    return measurements


def raise_file_limit() -> None:
    """Allow ourselves and the brokers we start as many open files as the system permits."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
