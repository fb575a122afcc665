"""Cost of a topic match, and its independence of filters that do not match.

    python -m bench.micro.matching [--exact 0 10000 1000000] [--wildcards 20000]

A topic is matched once when it is new, and again when a filter that concerns it is added or removed; every
other publish finds its audience in the topic. Both are measured.
"""

import argparse
import gc
import random
from time import perf_counter_ns

from penstock.core.delivery.policy import Limits
from penstock.core.settings import CoreSettings
from penstock.core.subscriptions.router import Router
from penstock.core.topics.registry import Registry

MATCHES = 50_000
TOPICS = 2_000


def open_filters(router: Router, exact: int, wildcards: int) -> None:
    """Filters of a large site: one for each lamp, and some for rooms and floors."""
    for number in range(exact):
        router.open_group(f"site/floor{number % 100}/room{number}/lamp/state")
    for number in range(wildcards // 2):
        router.open_group(f"site/floor{number % 100}/room{number}/+/state")
        router.open_group(f"site/+/room{number}/#")


def names(count: int) -> list[str]:
    """Topics in random order, each matched by a few filters."""
    chance = random.Random(1)
    rooms = (chance.randrange(10_000) for _ in range(count))
    return [f"site/floor{room % 100}/room{room}/lamp/state" for room in rooms]


def time_match(router: Router, topics: list[str]) -> float:
    """Nanoseconds per lookup in the tree."""
    match, rounds = router.match, MATCHES // len(topics)
    start = perf_counter_ns()
    for _ in range(rounds):
        for name in topics:
            match(name)
    return (perf_counter_ns() - start) / (rounds * len(topics))


def time_change(router: Router, registry: Registry, topics: list[str]) -> float:
    """Nanoseconds per topic to find that a new filter does not concern it."""
    made = [registry.make(name) for name in topics]
    for topic in made:
        router.refresh(topic)
    router.open_group("elsewhere/+")
    start = perf_counter_ns()
    for topic in made:
        router.refresh(topic)
    return (perf_counter_ns() - start) / len(made)


def main() -> None:
    """Print one line per number of filters."""
    parser = argparse.ArgumentParser(description="Nanoseconds per match, by number of filters.")
    parser.add_argument("--exact", type=int, nargs="+", default=[0, 10_000, 1_000_000])
    parser.add_argument("--wildcards", type=int, default=20_000)
    options = parser.parse_args()
    topics = names(TOPICS)
    print(f"{'exact':>10} {'wildcards':>10} {'matching':>9} {'ns/match':>9} {'ns/unconcerned':>15}")
    for exact, wildcards in [(0, 0), *((exact, options.wildcards) for exact in options.exact)]:
        registry = Registry(CoreSettings())
        router = Router(registry, Limits(1, 1))
        open_filters(router, exact, wildcards)
        found = sum(len(router.match(name)) for name in topics) / len(topics)
        gc.collect()
        match, change = time_match(router, topics), time_change(router, registry, topics)
        print(f"{exact:>10,} {wildcards:>10,} {found:>9.1f} {match:>9,.0f} {change:>15,.0f}")


if __name__ == "__main__":
    main()
