"""`nexusd.sidecar.SidecarService`: its methods by path."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from penstock.core.broker import Broker
from penstock.core.runtime.clock import Clock
from penstock.doors.sidecar.nexusd.context import Sidecar
from penstock.doors.sidecar.nexusd.publish import PublishMethod
from penstock.doors.sidecar.nexusd.resume import ResumeMethod
from penstock.doors.sidecar.nexusd.subscribe import SubscribeMethod, UnsubscribeMethod
from penstock.doors.sidecar.nexusd.topics import TopicMethods
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.transport.method import Call, Handler, Methods, Streaming, Unary
from penstock.doors.sidecar.transport.status import refuse, undecodable
from penstock.errors import InvalidRequest, PenstockError
from penstock.wire.sidecar.messages import nexusd

NAME = "nexusd.sidecar.SidecarService"

Decoded = TypeVar("Decoded", bound=Message)
Request = TypeVar("Request")
Serve = Callable[[Call, Request], None]
Begin = Callable[[Call, bytes], None]


class Service:
    """Everything that NexusD's clients can call."""

    def __init__(self, settings: SidecarSettings, broker: Broker, clock: Clock) -> None:
        self._sidecar = sidecar = Sidecar(settings, broker, clock)
        publishing, listing = PublishMethod(sidecar), TopicMethods(sidecar)
        unary: dict[str, Begin] = {
            "Publish": self._begin(
                nexusd.PublishRequest, publishing.read, publishing.publish, is_control=False
            ),
            "Unsubscribe": self._reader(nexusd.UnsubscribeRequest, UnsubscribeMethod(sidecar).unsubscribe),
            "GetTopics": self._reader(nexusd.GetTopicsRequest, listing.get_topics),
            "GetPeers": self._reader(nexusd.GetPeersRequest, listing.get_peers),
        }
        streaming: dict[str, Begin] = {
            "Subscribe": self._reader(nexusd.SubscribeRequest, SubscribeMethod(sidecar).subscribe),
            "ResumeSubscribe": self._reader(nexusd.ResumeSubscribeRequest, ResumeMethod(sidecar).resume),
        }
        self.methods: Methods = {
            **{f"/{NAME}/{method}": Unary(begin) for method, begin in unary.items()},
            **{f"/{NAME}/{method}": _streaming(begin) for method, begin in streaming.items()},
        }

    def configure(self, settings: SidecarSettings) -> None:
        """Go by other settings for new subscriptions."""
        self._sidecar.configure(settings)

    def _reader(self, kind: type[Decoded], serve: Serve[Decoded]) -> Begin:
        return self._begin(kind, kind.FromString, serve)

    def _begin(
        self,
        kind: type[Message],
        read: Callable[[bytes], Request],
        serve: Serve[Request],
        *,
        is_control: bool = True,
    ) -> Begin:
        """Wrap a method: decode its request, call it, and handle errors.

        Args:
            is_control: it brings no message.
        """
        sidecar, counters = self._sidecar, self._sidecar.counters

        def begin(call: Call, message: bytes) -> None:
            counters.control_packets_received += is_control
            try:
                serve(call, read(message))
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
    return Streaming(lambda call: RequestWaiter(call, begin))


class RequestWaiter(Handler):
    """Waits for the one request of a server-streaming call."""

    __slots__ = ("_begin", "_call")

    def __init__(self, call: Call, begin: Begin) -> None:
        self._call = call
        self._begin = begin

    def message_received(self, message: bytes) -> None:
        """The request was read; the method owns the call from now on."""
        self._call.handler = None
        self._begin(self._call, message)

    def messages_ended(self) -> None:
        """There is not a request."""
        refuse(self._call, InvalidRequest("there is no request"))
