"""What an absent session still gets.

In memory mode the owed list holds references to the runs themselves, under limits of its own. Nobody
can be made to wait for someone who is not there, and there is no connection to close: `block` and
`disconnect` therefore drop the newest, as MQTT's own default does.
"""

from penstock.core.outbox import Outbox
from penstock.core.policy import Decision
from penstock.core.ports import Form
from penstock.model import Policy, Run


class Owed(Outbox):
    """Runs in order, each with the form it was wanted in."""

    __slots__ = ()

    def add(self, run: Run, form: Form, policy: Policy) -> tuple[Decision, list[Run]]:
        """Owe a run; answer the decision and the runs that were dropped."""
        kept = policy if policy is Policy.DROP_OLDEST else Policy.DROP_NEWEST
        return super().add(run, form, kept)
