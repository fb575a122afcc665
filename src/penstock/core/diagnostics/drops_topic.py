"""`$penstock/drops`: new losses, published by the server for subscribers and for the log."""

from contextlib import suppress

from msgspec import json

from penstock.common.topics import matches
from penstock.core.diagnostics.ledger import News
from penstock.core.node import Node
from penstock.core.publishing.publish import Publisher
from penstock.errors import PenstockError

DROPS_TOPIC = "$penstock/drops"
DROPS_A_MESSAGE = 1_000


class DropsTopic:
    """Takes losses from the ledger while there is a subscriber, or the log captures them."""

    def __init__(self, node: Node, publisher: Publisher) -> None:
        self._node = node
        self._publisher = publisher
        self._news: list[News] = []  # losses that are not published yet
        node.ledger.is_watched = self._is_captured  # losses found by recovery are reported, too

    @property
    def _is_captured(self) -> bool:
        """The log keeps the record of losses, with or without a subscriber."""
        return any(matches(filter, DROPS_TOPIC) for filter in self._node.settings.log.capture)

    def take(self) -> bool:
        """Take new losses. Returns False: it is one step."""
        ledger = self._node.ledger
        ledger.is_watched = self._is_captured or bool(self._node.router.match(DROPS_TOPIC))
        news = ledger.take_news()
        for each in news:
            each.client_id = self._node.clients.client_of(each.client_id)
        self._news = self._news + news if ledger.is_watched else []
        return False

    def publish(self) -> bool:
        """Publish some of the new losses. Returns whether there are more."""
        some, self._news = self._news[:DROPS_A_MESSAGE], self._news[DROPS_A_MESSAGE:]
        if some:
            with suppress(PenstockError):  # there may be no room for one more topic
                self._publisher.publish_server(DROPS_TOPIC, json.encode(some))
        return bool(self._news)

    def finish(self) -> None:
        """Publish the last losses for the log; subscribers are disconnected."""
        if self._is_captured:
            self.take()
            while self.publish():  # with the last commit
                pass
