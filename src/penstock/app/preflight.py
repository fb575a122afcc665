"""Preflight: every mistake for which a start with some settings would be refused.

Files are read, no port is opened, and a data directory is not touched: a server may run on it meanwhile.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.config.settings import Settings, access_sources
from penstock.core.access.file_access import FileAccess, Sources
from penstock.errors import InvalidConfig
from penstock.extras import require_extra
from penstock.net.listener import parse_networks
from penstock.net.tls import Certificates

NO_DOOR = "mqtt.port, http.port, sidecar.port: every door is off; there is nothing to serve"
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


def find_mistakes(settings: Settings) -> list[str]:
    """All mistakes in settings whose values are valid one by one."""
    mistakes: list[str] = []
    for check in (
        lambda: access_sources(settings),
        lambda: _read_passwords(settings),
        lambda: _read_rules(settings),
        lambda: Certificates.load(settings.tls),
        lambda: parse_networks(settings.mqtt.proxies, "mqtt.proxies"),
        lambda: parse_networks(settings.http.proxies, "http.proxies"),
        lambda: _check_data_dir(settings.data_dir),
    ):
        mistakes += _mistake_of(check)
    mistakes += _missing_certificates(settings)
    mistakes += _port_conflicts(settings)
    if not any(True for _ in _ports(settings)):
        mistakes.append(NO_DOOR)
    return list(dict.fromkeys(mistakes))


def _mistake_of(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except InvalidConfig as error:
        return [str(error)]
    return []


def _read_passwords(settings: Settings) -> None:
    if settings.access.password_file:
        FileAccess(Sources(Path(settings.access.password_file), None, allow_anonymous=False))


def _read_rules(settings: Settings) -> None:
    """Read the access list; a wrong password file is another mistake."""
    access = settings.access
    if access.acl_file:
        # Rules of users are allowed if users can have names, by password or by certificate.
        has_names = bool(access.password_file) or settings.tls.name_as_user
        FileAccess(Sources(None, Path(access.acl_file), True, has_certificates=has_names))


def _check_data_dir(data_dir: str | None) -> None:
    """Refuse a data directory that cannot be made or written, before a server tries to."""
    if data_dir is None:
        return
    require_extra("log", "data_dir")
    path = Path(data_dir).absolute()
    nearest = next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110 - `Path.exists` raises
    if not nearest.is_dir():
        what = "Not a directory" if nearest != path else "File exists"
        raise InvalidConfig(f"data_dir: {data_dir} cannot be used: {what}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InvalidConfig(f"data_dir: {data_dir} cannot be used: Permission denied")


def _missing_certificates(settings: Settings) -> Iterator[str]:
    if settings.tls.certificate_file is not None:
        return
    wanted = {
        "mqtt.websocket_tls_port": settings.mqtt.websocket_tls_port is not None,
        "http.tls_port": settings.http.tls_port is not None,
        "http.admin_tls": settings.http.admin_tls and settings.http.admin_port is not None,
        "sidecar.tls_port": settings.sidecar.tls_port is not None,
    }
    yield from (f"{key}: tls.certificate_file is not set" for key, is_wanted in wanted.items() if is_wanted)


def _ports(settings: Settings) -> Iterator[tuple[str, str, int]]:
    """Key, host and port of everything that listens; 0 is a free port."""
    mqtt, http, grpc = settings.mqtt, settings.http, settings.sidecar
    has_tls = settings.tls.certificate_file is not None
    ports = [
        ("mqtt.port", settings.host, mqtt.port),
        ("mqtt.tls_port", settings.host, mqtt.tls_port if has_tls else None),
        ("mqtt.websocket_port", settings.host, mqtt.websocket_port),
        ("mqtt.websocket_tls_port", settings.host, mqtt.websocket_tls_port),
        *(("http.port", settings.host, port) for port in http.port),
        ("http.tls_port", settings.host, http.tls_port),
        ("http.admin_port", settings.host, http.admin_port),
        ("sidecar.port", grpc.host, grpc.port),
        ("sidecar.tls_port", grpc.host, grpc.tls_port),
    ]
    yield from ((key, host, port) for key, host, port in ports if port is not None)


def _port_conflicts(settings: Settings) -> Iterator[str]:
    """Two keys with the same port at one address; a wildcard includes every address."""
    listening = [each for each in _ports(settings) if each[2]]
    for at, (key, host, port) in enumerate(listening):
        for other, other_host, other_port in listening[:at]:
            if port == other_port and (host == other_host or host in WILDCARDS or other_host in WILDCARDS):
                yield f"{key}: {port} is also the port of {other}"
