"""`nexusd.sidecar.SidecarService`: its methods by path."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.doors.sidecar.answers import refuse, undecodable
from penstock.doors.sidecar.calls import Call, Handler, Methods, Streaming, Unary
from penstock.doors.sidecar.context import Sidecar
from penstock.doors.sidecar.listing import Listing
from penstock.doors.sidecar.publishing import Publishing
from penstock.doors.sidecar.resuming import Resuming
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.subscribing import Subscribing
from penstock.doors.sidecar.unsubscribing import Unsubscribing
from penstock.errors import InvalidRequest, PenstockError
from penstock.wire.sidecar import nexusd

NAME = "nexusd.sidecar.SidecarService"

Request = TypeVar("Request", bound=Message)
Serve = Callable[[Call, Request], None]
Begin = Callable[[Call, bytes], None]


class Service:
    """Everything that NexusD's clients can call."""

    def __init__(self, settings: SidecarSettings, broker: Broker, clock: Clock) -> None:
        self._sidecar = sidecar = Sidecar(settings, broker, clock)
        listing = Listing(sidecar)
        unary: dict[str, Begin] = {
            "Publish": self._reader(nexusd.PublishRequest, Publishing(sidecar).publish, is_control=False),
            "Unsubscribe": self._reader(nexusd.UnsubscribeRequest, Unsubscribing(sidecar).unsubscribe),
            "GetTopics": self._reader(nexusd.GetTopicsRequest, listing.get_topics),
            "GetPeers": self._reader(nexusd.GetPeersRequest, listing.get_peers),
        }
        streaming: dict[str, Begin] = {
            "Subscribe": self._reader(nexusd.SubscribeRequest, Subscribing(sidecar).subscribe),
            "ResumeSubscribe": self._reader(nexusd.ResumeSubscribeRequest, Resuming(sidecar).resume),
        }
        self.methods: Methods = {
            **{f"/{NAME}/{method}": Unary(begin) for method, begin in unary.items()},
            **{f"/{NAME}/{method}": _streaming(begin) for method, begin in streaming.items()},
        }

    def configure(self, settings: SidecarSettings) -> None:
        """Go by other settings for new subscriptions."""
        self._sidecar.configure(settings)

    def _reader(self, kind: type[Request], serve: Serve[Request], *, is_control: bool = True) -> Begin:
        """What reads a request and serves it, and answers for whatever goes wrong.

        Args:
            is_control: it brings no message.
        """
        sidecar, counters = self._sidecar, self._sidecar.counters

        def begin(call: Call, message: bytes) -> None:
            counters.control_packets_received += is_control
            try:
                serve(call, kind.FromString(message))
            except DecodeError:
                counters.wire_errors += 1
                counters.malformed_packets += 1
                sidecar.refuse(call, undecodable(kind.DESCRIPTOR.name))
            except PenstockError as error:
                sidecar.refuse(call, error)
            except Exception:
                sidecar.fail(call)

        return begin


def _streaming(begin: Begin) -> Streaming:
    return Streaming(lambda call: Asking(call, begin))


class Asking(Handler):
    """Waits for the one request of a call whose answers are many."""

    __slots__ = ("_begin", "_call")

    def __init__(self, call: Call, begin: Begin) -> None:
        self._call = call
        self._begin = begin

    def message_received(self, message: bytes) -> None:
        """The request is there; whoever serves it looks after the call from now on."""
        self._call.handler = None
        self._begin(self._call, message)

    def messages_ended(self) -> None:
        """There is no request."""
        refuse(self._call, InvalidRequest("there is no request"))
