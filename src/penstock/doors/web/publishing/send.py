"""Publish for a request, with one callback when the outcome is certain.

A publisher that is blocked under `block` waits before it publishes more, and before its response.
"""

from collections.abc import Callable, Collection, Sequence

from penstock.core.broker import Broker, Receipt, Refused
from penstock.core.ports.log import Ticket
from penstock.core.sessions.session import Session
from penstock.errors import NotAuthorized, PenstockError, StorageUnavailable
from penstock.model import Door, Run
from penstock.net.http.request import Request


def send(
    broker: Broker,
    request: Request,
    run: Run,
    done: Callable[[Request, Receipt], None],
    refuse: Callable[[Request, PenstockError], None],
) -> None:
    """Publish a message, and call back after its commit, or with the error."""
    sender = broker.request_sender(request.identity, Door.WEB)

    def publish() -> None:
        if request.is_disconnected:
            return  # while it waited
        try:
            receipt = broker.publish_once(run, sender)
        except PenstockError as error:
            _count(broker, (error,))
            refuse(request, error)
        else:
            _settle(
                broker, sender, receipt.ticket, lambda: done(request, receipt), lambda e: refuse(request, e)
            )

    broker.when_unblocked(sender, publish)


def send_all(
    broker: Broker,
    request: Request,
    runs: Sequence[Run],
    done: Callable[[Request, list[Receipt]], None],
    refuse: Callable[[Request, PenstockError | Refused], None],
) -> None:
    """Publish a list: all messages or none; then the errors are reported by index."""
    sender = broker.request_sender(request.identity, Door.WEB)

    def publish() -> None:
        if request.is_disconnected:
            return  # while it waited
        try:
            receipts = broker.publish_each(runs, sender)
        except Refused as refused:
            _count(broker, refused.errors.values())
            refuse(request, refused)
        else:
            tickets = [receipt.ticket for receipt in receipts if receipt.ticket is not None]
            ticket = max(tickets, default=None)
            _settle(broker, sender, ticket, lambda: done(request, receipts), lambda e: refuse(request, e))

    broker.when_unblocked(sender, publish)


def _settle(
    broker: Broker,
    sender: Session,
    ticket: Ticket | None,
    done: Callable[[], None],
    refuse: Callable[[PenstockError], None],
) -> None:
    def settle(failure: Exception | None) -> None:
        if failure is None:
            broker.when_acknowledgeable(sender, done)
        else:
            refuse(failure if isinstance(failure, PenstockError) else StorageUnavailable(str(failure)))

    broker.when_committed(ticket, settle)


def _count(broker: Broker, errors: Collection[PenstockError]) -> None:
    broker.counters.publishes_refused += len(errors)
    broker.counters.actions_forbidden += sum(isinstance(error, NotAuthorized) for error in errors)
