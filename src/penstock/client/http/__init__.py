"""Blocking HTTP client: publish, inspect a server, read its log, stage rows."""

from penstock.client.http.client import HttpClient
from penstock.client.http.log import LogRead

__all__ = ["HttpClient", "LogRead"]
