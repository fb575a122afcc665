"""What the streams door gives the HTTP listener: routes that it answers at once."""

from penstock.core.broker import Broker
from penstock.doors.http.problems import STREAMS
from penstock.doors.http.requests import Request
from penstock.doors.http.routes import Routes
from penstock.doors.streams.answers import HEALTHY
from penstock.doors.streams.receiving import Receiver
from penstock.doors.streams.sending import Sender


def offer(table: Routes, broker: Broker) -> None:
    """Fill the listener's table. The paths without a version are older, and mean the same."""
    sender, receiver = Sender(broker), Receiver(broker)
    for prefix in STREAMS:
        table.add("POST", f"{prefix}/send", sender.take)
        table.add("GET", f"{prefix}/receive", receiver.take, waits_its_turn=True, takes_away=True)
        table.add("GET", f"{prefix}/health", tell_health, is_open=True, max_body_bytes=0)


def tell_health(request: Request) -> None:
    """Answer that streams are served."""
    request.respond(200, HEALTHY)
