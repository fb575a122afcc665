"""GET /stats: what each topic had, and how many listen, as the In-memory Pub/Sub tells it."""

from fastapi import APIRouter, Response
from msgspec import Struct, json

from penstock.doors.web.answers import describe
from penstock.doors.web.context import Web
from penstock.doors.web.listing import list_names
from penstock.doors.web.parameters import Who, router_of
from penstock.doors.web.topics import choose_topics


class TopicStats(Struct):
    """One topic."""

    message_count: int
    """Messages since the server started, or since the topic was made."""
    subscriber_count: int
    """Those who are away included; a shared group counts once."""


class Stats(Struct):
    """Topics by name."""

    topics: dict[str, TopicStats]


def routes(web: Web) -> APIRouter:
    """What this module answers."""
    router = router_of("topics")
    broker = web.broker

    @router.get(
        "/stats",
        summary="Messages and subscribers of each topic",
        description="Of those that the caller may read, without those that begin with `$`. `GET /metrics` "
        "has more.",
        responses=describe(Stats),
    )
    async def stats(who: Who) -> Response:
        is_wanted = choose_topics(web, who, None, None)

        def part_of(name: str) -> bytes | None:
            topic = broker.topics.get(name)
            if topic is None or not is_wanted(name):  # it may have been deleted a moment ago
                return None
            row = TopicStats(topic.published, len(broker.router.find_audience(name)))
            return b"%b:%b" % (json.encode(name), json.encode(row))

        return list_names(list(broker.topics), part_of, b'{"topics":{', b"}}")

    return router
