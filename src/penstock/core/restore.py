"""At start: bring back from the state store what outlives the server.

Sessions come back absent, with their subscriptions, and are owed from then on; retained values come
back as they were. A form belongs to a connection, so a restored subscription has a stand-in until its
client returns and the door remakes it.
"""

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.access import Identity
from penstock.core.broker import Broker, SessionRecord
from penstock.core.ports import Form, Frame, StateStore
from penstock.core.sessions import Options, Session, Subscription
from penstock.model import Policy, Run


class AwayForm(Struct, frozen=True):
    """Stands for the form of a subscriber that has not come back yet: it knows what was asked for."""

    options: Options

    limit_bytes = 0

    @property
    def qos(self) -> int:
        return self.options.qos

    @property
    def no_local(self) -> bool:
        return self.options.no_local

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        raise AssertionError("nobody is there to encode for")

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        raise AssertionError("nobody is there to encode for")

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        return []

    def merge(self, other: Form) -> Form:
        return self if self.qos >= other.qos else other

    def as_retained(self) -> Form:
        return self
