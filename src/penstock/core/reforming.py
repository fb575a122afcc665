"""Makes the forms of what a session still gets anew: it came back another way, or left a shared group."""

from collections.abc import Callable

from penstock.core.inflight import Pending
from penstock.core.ports import Form
from penstock.core.sessions import Session
from penstock.core.shared import SharedForm, SharedGroup, reform_any


def reform(session: Session, change: Callable[[Form], Form]) -> None:
    """Remake the forms of everything a session still gets."""
    _reform_waiting(session, lambda form: reform_any(form, change))
    for backlog in session.backlog.values() if session.backlog else ():
        backlog.form = change(backlog.form)


def make_own(session: Session, group: SharedGroup) -> None:
    """A session left a shared group: what it was chosen for stays its own, whoever is left."""
    _reform_waiting(
        session,
        lambda form: form.form if isinstance(form, SharedForm) and form.group is group else form,
    )


def _reform_waiting(session: Session, change: Callable[[Form], Form]) -> None:
    if session.inflight is not None:
        for number, pending in session.inflight.entries.items():
            if pending is not None:
                session.inflight.entries[number] = Pending(pending.run, change(pending.form), pending.level)
    for queue in (session.outbox, session.owed):
        if queue:
            queue.reform(change)
