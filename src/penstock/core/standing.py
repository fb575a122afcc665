"""How far a session has got, as one offset: what its door keeps of it if it may come back."""

from penstock.core.sessions import Session
from penstock.core.shared import SharedForm


def stand_of(session: Session, head: int, unflushed: int | None) -> int:
    """The offset up to which everything that a session wanted has left, or is accounted for.

    Args:
        head: the newest offset.
        unflushed: the oldest offset that is published and not delivered yet, if there is one.
    """
    reached = [head]
    if unflushed is not None:
        reached.append(unflushed - 1)
    for queue in (session.outbox, session.owed):
        entries = queue.entries() if queue else ()
        waiting = (
            run.offset for run, form in entries if not (form.is_retained or isinstance(form, SharedForm))
        )
        first = next(waiting, None)
        if first is not None:
            reached.append(first - 1)
    joined = None if session.joins is None else session.joins.position
    if joined is not None:
        reached.append(joined)
    return min(reached)
