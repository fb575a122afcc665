"""A whole server for tests, in their own process: `with penstock.testing.server() as ps:`.

`sync.py` and `aio.py` have its two faces, for tests without and with a loop; `base.py` has what both can do.
Behind them is a server that can be stopped and started again at the same addresses (`restartable.py`), and
one run of it in a thread (`thread.py`). The rest is about it: the settings it is given, the ports it has,
what can be seen of it (`inspection.py`), and what it changes in the process (`side_effects.py`).
"""

from penstock.testing.running.aio import AsyncRunningServer
from penstock.testing.running.sync import RunningServer, server

__all__ = ["AsyncRunningServer", "RunningServer", "server"]
