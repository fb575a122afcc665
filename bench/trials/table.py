"""Table of all trials. Needs the extra `log`."""

from collections.abc import Callable, Iterator

from bench.measurement import Measurement
from bench.trials.log_disk import read_log, start_with_log
from bench.trials.log_http import read_by_http, read_under_load
from bench.trials.offline_sessions import drain_offline_queues, restart_after_kill
from bench.trials.server import Site

Trial = Callable[[Site, int], Iterator[Measurement]]
"""Prepares once, then measures as often as its second argument says."""

TRIALS: dict[str, Trial] = {
    "log_read": read_log,
    "log_http": read_by_http,
    "log_http_load": read_under_load,
    "log_start": start_with_log,
    "owed": drain_offline_queues,
    "restart": restart_after_kill,
}
"""By name of the scenario."""
