"""Session progress as one log offset, kept for resumption."""

from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import is_shared


def progress_of(session: Session, head: int, unflushed: int | None) -> int:
    """The offset up to which everything that a session wanted has left, or is accounted for.

    Args:
        head: the newest offset.
        unflushed: the oldest offset that is published and not delivered yet, if there is one.
    """
    reached = [head]
    if unflushed is not None:
        reached.append(unflushed - 1)
    for queue in (session.outbox, session.offline_queue):
        entries = queue.entries() if queue else ()
        waiting = (
            run.offset for run, encoding in entries if not (encoding.is_retained or is_shared(encoding))
        )
        first = next(waiting, None)
        if first is not None:
            reached.append(first - 1)
    joined = None if session.catch_ups is None else session.catch_ups.position
    if joined is not None:
        reached.append(joined)
    return min(reached)
