"""Who may come in, as the settings say, and whether that was decided by somebody.

Nothing is read here: what the files say is told by `penstock.core.access`.
"""

import ipaddress
from pathlib import Path

from penstock.config.settings import Settings
from penstock.core.access import Sources
from penstock.errors import InvalidConfig


def access_sources(settings: Settings) -> Sources:
    """Where users and rights come from.

    Raises:
        InvalidConfig: the server would be open to strangers without anyone having said so.
    """
    access, has_names = settings.access, settings.tls.name_as_user
    if access.password_file is None and access.acl_file is None:
        _check_hosts(settings)
        if not has_names:
            return Sources(None, None, allow_anonymous=True)
    # Whoever gives a password file means that people should log in, on loopback too.
    allow_anonymous = access.allow_anonymous or (access.allow_anonymous is None and not access.password_file)
    passwords = Path(access.password_file) if access.password_file else None
    rules = Path(access.acl_file) if access.acl_file else None
    return Sources(passwords, rules, allow_anonymous, has_names)


def _check_hosts(settings: Settings) -> None:
    access = settings.access
    is_decided = access.allow_anonymous or (settings.tls.name_as_user and access.allow_anonymous is False)
    for key, host in _hosts(settings).items():
        if not is_loopback(host) and not is_decided:
            raise InvalidConfig(
                f"{key}: {host} is not loopback, and there is neither access.password_file nor "
                "access.acl_file; give one, or say --allow-anonymous"
            )


def _hosts(settings: Settings) -> dict[str, str]:
    """The addresses that doors listen on, by setting."""
    sidecar = settings.sidecar
    is_open = sidecar.port is not None or sidecar.tls_port is not None
    return {"host": settings.host} | ({"sidecar.host": sidecar.host} if is_open else {})


def is_loopback(host: str) -> bool:
    """Only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
