"""Publishing in the name of a request: it is told once what became of its messages, when that is certain."""

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.core.broker import Broker, Receipt
from penstock.core.sessions import Session
from penstock.doors.http.requests import Request
from penstock.errors import NotAuthorized, PenstockError, StorageUnavailable
from penstock.model import Door, Run


class Refused(Exception):
    """Messages of a list that were not taken, by their index; so none was."""

    def __init__(self, errors: Mapping[int, PenstockError]) -> None:
        super().__init__(f"{len(errors)} messages were refused")
        self.errors = errors


def send(
    broker: Broker,
    request: Request,
    runs: Sequence[Run],
    done: Callable[[list[Receipt]], None],
    refuse: Callable[[PenstockError | Refused], None],
    *,
    is_list: bool = False,
) -> None:
    """Publish messages, all of them or none, and call back when they are safe, or will not be.

    Whoever is held back under `block` waits before it publishes more, and before it is told.

    Args:
        is_list: if some are refused, it is told of each why, as `Refused`.
    """
    sender = broker.callers.of(request.identity, Door.WEB)

    def publish() -> None:
        if request.is_gone:
            return  # while it waited
        try:
            if is_list:
                _check_all(broker, runs, sender)
            receipts = broker.publish_each(runs, sender)
        except Refused as refused:
            _count(broker, refused.errors.values())
            refuse(refused)
        except PenstockError as error:
            _count(broker, (error,))
            refuse(error)
        else:
            tickets = [receipt.ticket for receipt in receipts if receipt.ticket is not None]
            broker.when_settled(max(tickets, default=None), lambda failure: settle(receipts, failure))

    def settle(receipts: list[Receipt], failure: Exception | None) -> None:
        if failure is None:
            broker.when_free(sender, lambda: done(receipts))
        else:
            refuse(failure if isinstance(failure, PenstockError) else StorageUnavailable(str(failure)))

    broker.when_free(sender, publish)


def _check_all(broker: Broker, runs: Sequence[Run], sender: Session) -> None:
    errors: dict[int, PenstockError] = {}
    for index, run in enumerate(runs):
        try:
            broker.check_publish(run, sender)
        except PenstockError as error:
            errors[index] = error
    if errors:
        raise Refused(errors)


def _count(broker: Broker, errors: Collection[PenstockError]) -> None:
    broker.counters.publishes_refused += len(errors)
    broker.counters.actions_forbidden += sum(isinstance(error, NotAuthorized) for error in errors)
