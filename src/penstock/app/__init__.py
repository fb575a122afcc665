"""The one room that knows every other and wires them: settings in, a running server out.

`server.py` makes the rooms, opens and closes them, and hands them other settings. `housekeeping.py` has what
a server does every so often, `timers.py` how it is repeated, and `loops.py` which loop it runs on best.
"""

from penstock.app.loops import best_loop
from penstock.app.server import Server

__all__ = ["Server", "best_loop"]
