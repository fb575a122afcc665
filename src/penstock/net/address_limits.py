"""Limits per client address: open connections, new connections a second, wrong passwords a second.

All doors share one instance. It counts by what a client cannot change at will: an IPv4 address, or the /64
network of an IPv6 one. Its memory is bounded: open connections are counted while they are open, and of the
addresses that connect too fast or send wrong passwords only the latest are remembered.
"""

import socket
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from penstock.core.runtime.bounded_map import BoundedMap
from penstock.core.runtime.clock import Clock
from penstock.net.rate_limit import TokenBucket

ADDRESSES_REMEMBERED = 65_536
"""Addresses whose rate is remembered, about 20 MB; beyond it the oldest is forgotten."""
REFUSED_REMEMBERED = 1_024
"""Refused addresses counted one by one each second; the total is exact."""
FORGOTTEN_AT_ONCE = 5_000
"""Idle addresses that one `reap` forgets at most, so that it never takes long."""
FORGOTTEN_FOR_ONE = 2
"""Idle addresses forgotten for each new one; more than one, so that the table shrinks."""
REPORT_INTERVAL_S = 1.0
MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of IPv4 addresses in IPv6 form."""


class AddressLimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits per client address; an IPv6 address counts with its /64 network."""

    per_address: Annotated[int, Meta(ge=0)] = 0
    """Most connections from one address at the same time; 0 means no limit."""
    rate_per_address: Annotated[float, Meta(ge=0)] = 0.0
    """New connections a second from one address; 0 means no limit."""
    burst_per_address: Annotated[int, Meta(ge=1)] = 100
    """New connections from one address that may come at once, before `rate_per_address` holds them back."""
    failures_per_address: Annotated[float, Meta(ge=0)] = 1.0
    """Wrong passwords a second from one address, at all doors together; 0 means no limit."""
    failure_burst_per_address: Annotated[int, Meta(ge=1)] = 20
    """Wrong passwords from one address that may come at once, before `failures_per_address` counts."""


class Verdict(StrEnum):
    """Decision about a new connection."""

    ADMITTED = "admitted"
    TOO_MANY = "too-many"
    TOO_FAST = "too-fast"


class Refusals(Struct, frozen=True):
    """Refusals since the last report, and the address with most of them."""

    too_many: int
    too_fast: int
    worst: str
    worst_count: int


class AddressLimits:
    """Admission by address. A connection that entered must `leave` when it ends.

    `is_needed` is False while no limit is set; then nothing has to be asked.
    """

    def __init__(self, settings: AddressLimitSettings, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, int] = {}
        self._settings: AddressLimitSettings | None = None
        self.configure(settings)
        self._too_many = self._too_fast = 0
        self._refused: dict[str, int] = {}
        self._reported_at = clock.monotonic() - REPORT_INTERVAL_S

    def configure(self, settings: AddressLimitSettings) -> None:
        """Apply other limits from now on; connections made while there were none are not counted."""
        if settings == self._settings:
            return  # recorded failures stay
        self._settings = settings
        self._most = settings.per_address
        self._rate = settings.rate_per_address
        self.is_needed = bool(self._most or self._rate)
        self._arrivals = _Buckets(self._rate, settings.burst_per_address)
        self._is_patient = not settings.failures_per_address
        self._failures = _Buckets(settings.failures_per_address, settings.failure_burst_per_address)

    def arrive(self, host: str) -> Verdict:
        """Check the rate of new connections, before the TLS or proxy handshake of one."""
        if not self._rate:
            return Verdict.ADMITTED
        name = network_of(host)
        now = self._clock.monotonic()
        if self._arrivals.find(name, now).take(1, now):
            return Verdict.ADMITTED
        self._too_fast += 1
        self._note_refused(name)
        return Verdict.TOO_FAST

    def enter(self, host: str, *, has_arrived: bool = False) -> Verdict:
        """Decide about a connection from an address, and count it if it is admitted."""
        if not self.is_needed:
            return Verdict.ADMITTED
        name = network_of(host)
        count = self._open.get(name, 0)
        if self._most and count >= self._most:
            self._too_many += 1
            self._note_refused(name)
            return Verdict.TOO_MANY
        if not has_arrived and self.arrive(host) is not Verdict.ADMITTED:
            return Verdict.TOO_FAST
        self._open[name] = count + 1  # also without a limit: one may be set before it leaves
        return Verdict.ADMITTED

    def leave(self, host: str) -> None:
        """Count one connection less."""
        name = network_of(host)
        count = self._open.get(name, 0)
        if count > 1:
            self._open[name] = count - 1
        else:
            self._open.pop(name, None)

    def has_tries(self, host: str) -> bool:
        """True if a password from an address may be checked now; nothing is counted."""
        if self._is_patient:
            return True
        now = self._clock.monotonic()
        return not self._failures.find(network_of(host), now).wait_s(now)

    def may_try(self, host: str) -> bool:
        """True if a password from an address may be checked; it counts as wrong until `forgive`."""
        now = self._clock.monotonic()
        return self._is_patient or self._failures.find(network_of(host), now).take(1, now)

    def forgive(self, host: str) -> None:
        """Undo `may_try`: the password was right, or was not checked after all."""
        if not self._is_patient:
            now = self._clock.monotonic()
            self._failures.find(network_of(host), now).give_back(1, now)

    def reap(self) -> Refusals | None:
        """Forget idle addresses, and return what was refused; called once a second.

        Returns None if nothing was refused, or less than a second has passed since the last report: a log
        line per report cannot fill the disk.
        """
        now = self._clock.monotonic()
        self._arrivals.forget_idle(now, FORGOTTEN_AT_ONCE)
        if not self._refused or now < self._reported_at + REPORT_INTERVAL_S:
            return None
        worst = max(self._refused, key=self._refused.__getitem__)
        refusals = Refusals(self._too_many, self._too_fast, worst, self._refused[worst])
        self._too_many = self._too_fast = 0
        self._refused = {}
        self._reported_at = now
        return refusals

    def _note_refused(self, name: str) -> None:
        if name in self._refused or len(self._refused) < REFUSED_REMEMBERED:
            self._refused[name] = self._refused.get(name, 0) + 1


class _Buckets:
    """Token buckets by address, the least recently used forgotten first."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: BoundedMap[str, TokenBucket] = BoundedMap(ADDRESSES_REMEMBERED)

    def __len__(self) -> int:
        return len(self._buckets)

    def find(self, name: str, now: float) -> TokenBucket:
        """Return the bucket of an address; a new one makes idle ones forgotten."""
        bucket = self._buckets.use(name)
        if bucket is None:
            self.forget_idle(now, FORGOTTEN_FOR_ONE)
            bucket = TokenBucket(self._rate, self._burst)
            self._buckets.put(name, bucket)
            self._buckets.take_stale()
        return bucket

    def forget_idle(self, now: float, most: int) -> None:
        """Forget full buckets, the oldest first: they are no different from new ones."""
        for _ in range(most):
            oldest = next(iter(self._buckets), None)
            bucket = None if oldest is None else self._buckets.find(oldest)
            if oldest is None or bucket is None or not bucket.is_full(now):
                return
            self._buckets.pop(oldest)


def network_of(host: str) -> str:
    """Return the key of an address: IPv4 address or IPv6 /64; any other text stands for itself."""
    if ":" not in host:
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])  # less the interface
    except OSError:
        return host
    if packed.startswith(MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[len(MAPPED) :])
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"
