"""Hot routes of the streams door."""

from penstock.core.broker import Broker
from penstock.doors.streams.receive import Receiver
from penstock.doors.streams.responses import HEALTHY
from penstock.doors.streams.send import Sender
from penstock.net.http.errors import STREAMS
from penstock.net.http.request import Request
from penstock.net.http.routes import Routes


def add_routes(table: Routes, broker: Broker) -> None:
    """Fill the listener's table. The paths without a version are older, and mean the same."""
    sender, receiver = Sender(broker), Receiver(broker)
    for prefix in STREAMS:
        table.add("POST", f"{prefix}/send", sender.take)
        table.add("GET", f"{prefix}/receive", receiver.take, waits_its_turn=True, takes_away=True)
        table.add("GET", f"{prefix}/health", respond_health, is_open=True, max_body_bytes=0)


def respond_health(request: Request) -> None:
    """Respond that streams are served."""
    request.respond(200, HEALTHY)
