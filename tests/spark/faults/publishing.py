"""Messages that keep coming while something else happens."""

import threading
from types import TracebackType

from tests.spark.servers import LogServer

TOPICS = 12
AT_ONCE = 36
PAUSE_S = 0.1


class Publishing:
    """Publishes to some topics until its `with` block ends."""

    def __init__(self, server: LogServer, prefix: str) -> None:
        self._server = server
        self._topics = [f"{prefix}/{number}" for number in range(TOPICS)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publishing")
        self.published = 0

    def __enter__(self) -> "Publishing":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            self.published += len(self._server.publish_numbers(self._topics, AT_ONCE))
