"""How many frames that carry nothing a client may send: each is legal, thousands of them are an attack."""

from penstock.wire.http2.errors import ConnectionFault, ErrorCode


class Allowance:
    """So many of something in a second, and as many at once; time is handed in with each."""

    __slots__ = ("_left", "_per_s", "_updated_at")

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._updated_at: float | None = None

    def use(self, now: float, count: float = 1) -> None:
        """Use some of it.

        Raises:
            ConnectionFault: too little is left.
        """
        if self._updated_at is not None and now > self._updated_at:
            self._left = min(self._left + (now - self._updated_at) * self._per_s, float(self._per_s))
        self._updated_at = now if self._updated_at is None else max(now, self._updated_at)
        self._left -= count
        if self._left < 0:
            text = f"more than {self._per_s} frames in a second that carry nothing"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text)
