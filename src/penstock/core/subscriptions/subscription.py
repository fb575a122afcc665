"""Subscription of one session to one filter, present and past, with its options."""

from msgspec import Struct

from penstock.core.ports.connection import Encoding
from penstock.model import Policy


class Options(Struct, frozen=True):
    """Subscription options, protocol-neutral."""

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    marks: bool = False
    """Sequence, time and cursor come with each message."""


class Subscription(Struct, frozen=True, gc=False):
    """One filter of one session."""

    filter: str
    options: Options
    encoding: Encoding
    policy: Policy
    since: int = 0
    """The newest offset when it was made; replacing it changes nothing."""


class PastSubscription(Struct, frozen=True, array_like=True):
    """Filter that was removed or lowered to QoS 0 while messages of it were still queued."""

    filter: str
    options: Options
    policy: Policy
    since: int
    until: int
    """The newest offset when it was left."""
