"""Publishing in the name of a request: it is told once what became of its messages, when that is certain.

Whoever is held back under `block` waits before it publishes more, and before it is told.
"""

from collections.abc import Callable, Collection, Sequence

from penstock.core.broker import Broker, Receipt, Refused
from penstock.core.ports import Ticket
from penstock.core.sessions import Session
from penstock.doors.http.requests import Request
from penstock.errors import NotAuthorized, PenstockError, StorageUnavailable
from penstock.model import Door, Run


def send(
    broker: Broker,
    request: Request,
    run: Run,
    done: Callable[[Request, Receipt], None],
    refuse: Callable[[Request, PenstockError], None],
) -> None:
    """Publish a message, and call back when it is safe, or will not be."""
    sender = broker.callers.of(request.identity, Door.WEB)

    def publish() -> None:
        if request.is_gone:
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

    broker.when_free(sender, publish)


def send_all(
    broker: Broker,
    request: Request,
    runs: Sequence[Run],
    done: Callable[[Request, list[Receipt]], None],
    refuse: Callable[[Request, PenstockError | Refused], None],
) -> None:
    """The same for messages of a list: all are published or none, and then it is told of each why."""
    sender = broker.callers.of(request.identity, Door.WEB)

    def publish() -> None:
        if request.is_gone:
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

    broker.when_free(sender, publish)


def _settle(
    broker: Broker,
    sender: Session,
    ticket: Ticket | None,
    done: Callable[[], None],
    refuse: Callable[[PenstockError], None],
) -> None:
    def settle(failure: Exception | None) -> None:
        if failure is None:
            broker.when_let_go(sender, done)
        else:
            refuse(failure if isinstance(failure, PenstockError) else StorageUnavailable(str(failure)))

    broker.when_settled(ticket, settle)


def _count(broker: Broker, errors: Collection[PenstockError]) -> None:
    broker.counters.publishes_refused += len(errors)
    broker.counters.actions_forbidden += sum(isinstance(error, NotAuthorized) for error in errors)
