"""All trials. Whoever imports them needs the extra `log`."""

from collections.abc import Callable, Iterator

from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.trials.log_http import read_by_http, read_under_load
from penstock.cli.bench.trials.log_read import read_log
from penstock.cli.bench.trials.log_start import start_with_log
from penstock.cli.bench.trials.owed import come_back
from penstock.cli.bench.trials.restart import restart_after_kill
from penstock.cli.bench.trials.site import Site

Trial = Callable[[Site, int], Iterator[Measurement]]
"""Prepares once, then measures as often as is said."""

TRIALS: dict[str, Trial] = {
    "log_read": read_log,
    "log_http": read_by_http,
    "log_http_load": read_under_load,
    "log_start": start_with_log,
    "owed": come_back,
    "restart": restart_after_kill,
}
"""By the name of the scenario."""
