"""How long a match takes, and how little that depends on the filters that do not match.

    python bench/matching.py [--exact 0 10000 1000000] [--wildcards 20000]

A match is what a topic needs once, when it is new or when a filter that concerns it came or went; every
other publish finds its audience in the topic. Both are measured.
"""

import argparse
import gc
import random
from time import perf_counter_ns

from penstock.core.policy import Limits
from penstock.core.registry import Registry
from penstock.core.router import Router
from penstock.core.settings import CoreSettings

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
    """Topics of which each is matched by a few filters, in no order."""
    chance = random.Random(1)
    rooms = (chance.randrange(10_000) for _ in range(count))
    return [f"site/floor{room % 100}/room{room}/lamp/state" for room in rooms]


def time_match(router: Router, topics: list[str]) -> float:
    """Nanoseconds for one look at the tree."""
    match, rounds = router.match, MATCHES // len(topics)
    start = perf_counter_ns()
    for _ in range(rounds):
        for name in topics:
            match(name)
    return (perf_counter_ns() - start) / (rounds * len(topics))


def time_change(router: Router, registry: Registry, topics: list[str]) -> float:
    """Nanoseconds for a topic to find that a new filter does not concern it."""
    made = [registry.make(name) for name in topics]
    for topic in made:
        router.refresh(topic)
    router.open_group("elsewhere/+")
    start = perf_counter_ns()
    for topic in made:
        router.refresh(topic)
    return (perf_counter_ns() - start) / len(made)


def main() -> None:
    """Print one line for each number of filters."""
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
