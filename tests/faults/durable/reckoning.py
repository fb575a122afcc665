"""What became of messages: lost, out of order, repeated; all of it must be nothing."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tests.faults.durable.load import Name, Publisher, Subscriber

SHOWN = 5


class Reckoning(Struct, frozen=True):
    """What one subscriber did not get as it should; empty if all is well."""

    lost: tuple[Name, ...] = ()
    reordered: tuple[Name, ...] = ()
    repeated: tuple[Name, ...] = ()
    mistakes: tuple[str, ...] = ()
    sessions_lost: int = 0


ALL_IS_WELL = Reckoning()


def names_of(publishers: Iterable[Publisher]) -> set[Name]:
    """Everything that was acknowledged."""
    return {(each.client_id, number) for each in publishers for number in each.acknowledged}


def reckon(publishers: Sequence[Publisher], subscriber: Subscriber) -> Reckoning:
    """Compare what was acknowledged with what came; a repetition is wrong at QoS 2 alone."""
    lost = sorted(names_of(publishers) - set(subscriber.arrivals))
    return Reckoning(
        lost=tuple(lost[:SHOWN]),
        reordered=tuple(out_of_order(subscriber.arrivals)[:SHOWN]),
        repeated=tuple(repetitions(subscriber.arrivals)[:SHOWN]) if subscriber.qos == 2 else (),
        mistakes=tuple(subscriber.mistakes[:SHOWN]),
        sessions_lost=subscriber.sessions_lost,
    )


def out_of_order(arrivals: Iterable[Name]) -> list[Name]:
    """Messages that came for the first time when a later one of their publisher had been there before."""
    seen: set[Name] = set()
    latest: dict[str, int] = {}
    found: list[Name] = []
    for publisher, number in arrivals:
        if (publisher, number) in seen:
            continue
        seen.add((publisher, number))
        if number < latest.get(publisher, -1):
            found.append((publisher, number))
        latest[publisher] = max(number, latest.get(publisher, -1))
    return found


def repetitions(arrivals: Iterable[Name]) -> list[Name]:
    """Messages that came although they had been there before."""
    seen: set[Name] = set()
    return [name for name in arrivals if name in seen or seen.add(name)]
