"""`grpc.health.v1.Health`: health checks for load balancers and probes.

All services have the same state: they serve until the server begins to stop. No credentials are needed.
"""

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from penstock.doors.sidecar.transport.method import Call, EndCause, Handler, Methods, Streaming, Unary
from penstock.doors.sidecar.transport.status import refuse, undecodable
from penstock.errors import InvalidRequest, ShuttingDown
from penstock.wire.grpc import Status, encode_message
from penstock.wire.sidecar.messages.health import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)

NAME = "grpc.health.v1.Health"
WHOLE_SERVER = ""


class Health:
    """State of the services, and the calls that watch it.

    Args:
        services: the full names of all others.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset((WHOLE_SERVER, NAME, *services))
        self._is_serving = True
        self._watchers: dict[_Watch, None] = {}
        self.methods: Methods = {
            f"/{NAME}/Check": Unary(self._check),
            f"/{NAME}/List": Unary(self._list),
            f"/{NAME}/Watch": Streaming(lambda call: _Watch(call, self)),
        }

    @property
    def watching(self) -> int:
        """Number of watching calls."""
        return len(self._watchers)

    def drain(self) -> None:
        """Report NOT_SERVING to all callers at shutdown."""
        self._is_serving = False
        for watch in list(self._watchers):
            watch.notify()

    def close(self) -> None:
        """End the calls that watch; they would continue forever."""
        for watch in list(self._watchers):
            watch.close()

    def response_of(self, service: str) -> HealthCheckResponse | None:
        """Return the state of a service; None if it is unknown."""
        return self._response() if service in self._services else None

    def add(self, watch: "_Watch") -> None:
        """Add a watcher."""
        self._watchers[watch] = None

    def remove(self, watch: "_Watch") -> None:
        """Remove a watcher."""
        self._watchers.pop(watch, None)

    def _response(self) -> HealthCheckResponse:
        serving, draining = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
        return HealthCheckResponse(status=serving if self._is_serving else draining)

    def _check(self, call: Call, message: bytes) -> None:
        service = _service_in(call, message)
        if service is None:
            return
        response = self.response_of(service)
        if response is None:
            call.finish(Status.NOT_FOUND, "there is no service of this name")
        else:
            call.respond(response.SerializeToString())

    def _list(self, call: Call, message: bytes) -> None:
        try:
            HealthListRequest.FromString(message)
        except DecodeError:
            refuse(call, undecodable("HealthListRequest"))
            return
        statuses = dict.fromkeys(self._services, self._response())
        call.respond(HealthListResponse(statuses=statuses).SerializeToString())


class _Watch(Handler):
    """A call that watches a service: it gets the state now and with every change."""

    __slots__ = ("_call", "_health", "_service")

    def __init__(self, call: Call, health: Health) -> None:
        self._call = call
        self._health = health
        self._service: str | None = None

    def message_received(self, message: bytes) -> None:
        if self._service is not None:
            self._end(InvalidRequest("a call watches one service"))
            return
        self._service = _service_in(self._call, message)
        if self._service is not None:
            self._health.add(self)
            self.notify()

    def messages_ended(self) -> None:
        if self._service is None:
            self._end(InvalidRequest("nothing says which service to watch"))

    def ended(self, cause: EndCause) -> None:
        self._health.remove(self)

    def notify(self) -> None:
        """Say how the service is."""
        unknown = HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        response = self._health.response_of(self._service or WHOLE_SERVER) or unknown
        self._call.send(encode_message(response.SerializeToString()))

    def close(self) -> None:
        """End the call, as the server stops."""
        self._end(ShuttingDown("the server stops"))

    def _end(self, error: InvalidRequest | ShuttingDown) -> None:
        self._health.remove(self)
        refuse(self._call, error)


def _service_in(call: Call, message: bytes) -> str | None:
    """Decode the service name of a request; the call ends if that fails."""
    try:
        return HealthCheckRequest.FromString(message).service
    except DecodeError:
        refuse(call, undecodable("HealthCheckRequest"))
        return None
