"""What the dashboard shows: which server, asked as whom, and which lake."""

import ssl
from pathlib import Path
from typing import NamedTuple

from penstock.client import HttpClient

TIMEOUT_S = 5.0
"""How long the server may be silent before it counts as unreachable."""


class Source(NamedTuple):
    """A server, who asks it, and the lake that belongs to it, if any."""

    address: str = "http://127.0.0.1:8080"
    user: str | None = None
    password: str | None = None
    ca_file: Path | None = None
    lake: Path | None = None

    def connect(self, timeout: float = TIMEOUT_S) -> HttpClient:
        """A client of this server; whether it is there shows with the first request.

        Raises:
            ValueError: the address or the user's name is none.
            OSError: the certificates cannot be read.
        """
        trusted = None if self.ca_file is None else ssl.create_default_context(cafile=str(self.ca_file))
        return HttpClient(self.address, self.user, self.password, timeout=timeout, tls=trusted)
