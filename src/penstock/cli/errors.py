"""Errors of a connection, explained in one line: what happened, and what to try.

When nothing or the wrong thing responds, a probe finds the protocol at the port.
"""

from penstock.cli.connect import OWN_PORTS, Endpoint, HttpServer, MqttServer
from penstock.cli.flags import ServerFlags
from penstock.client import ConnectionLost, ConnectionRefused, HttpRefused, RequestRefused
from penstock.client.probe import Listener, Protocol, identify
from penstock.errors import BadCredentials, NotAuthorized, PenstockError, ShuttingDown, UnknownClient
from penstock.wire.mqtt.reasons import ReasonCode

_REFUSED_USER = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)
_UNAVAILABLE_REASONS = (
    ReasonCode.SERVER_SHUTTING_DOWN,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY,
)
_UNAVAILABLE_STATUS = 503
_NO_SUCH_PATH = ("not-found", "request-refused")
_FOREIGN_RESPONSE = " responded with status "
"""Part of the text of an error whose body was not Penstock's: another server may have sent it."""
_TRY_LATER = "It is about to stop, or has too much to do: try again in a while."


def explain_mqtt(error: PenstockError, server: MqttServer, endpoint: Endpoint) -> str:
    """Explain an error of an MQTT connection."""
    reason = getattr(error, "reason", None)
    if isinstance(error, ConnectionRefused):
        if reason is None:
            return _explain_no_connection(error, endpoint)
        if reason in _REFUSED_USER:
            return f"the server does not let {server.who} in: {error}. {_credentials_advice(server)}"
        if reason in _UNAVAILABLE_REASONS:
            return f"the server refused the connection: {error}. {_TRY_LATER}"
        return f"the server refused the connection: {error}."
    if isinstance(error, RequestRefused) and reason == ReasonCode.NOT_AUTHORIZED:
        return f"{error}. {server.who} has no right to do this: see the server's access list."
    if isinstance(error, ConnectionLost) and reason in _UNAVAILABLE_REASONS:
        return f"{error}. {_TRY_LATER}"
    return str(error)


def explain_http(error: PenstockError, server: HttpServer, endpoint: Endpoint) -> str:
    """Explain an error of an HTTP request."""
    if isinstance(error, HttpRefused) and _FOREIGN_RESPONSE in str(error):
        found = identify(endpoint.host, endpoint.port)
        if not found.is_penstock:
            return describe_mismatch(found, endpoint) or _not_penstock(endpoint)
    if error.code == BadCredentials.code:
        return f"the server does not let {server.who} in: {error}. {_credentials_advice(server)}"
    if error.code == NotAuthorized.code:
        return f"{server.who} is not allowed to do this: {error}."
    if error.code == UnknownClient.code:
        return f"{error}; `penstock clients` lists those there are"
    if error.code == ShuttingDown.code or getattr(error, "status", None) == _UNAVAILABLE_STATUS:
        return f"{error}. {_TRY_LATER}"
    if isinstance(error, HttpRefused) and error.status == 404 and error.code in _NO_SUCH_PATH:
        return f"{error}. A server with http.admin_port serves this there: try --port."
    if isinstance(error, ConnectionRefused | ConnectionLost):
        return _explain_no_connection(error, endpoint)
    return str(error)


def describe_mismatch(found: Listener, endpoint: Endpoint) -> str | None:
    """The difference between a port and what was expected there, with advice; None if it matches."""
    here = f"{endpoint.host}:{endpoint.port}"
    if found.protocol is Protocol.MQTT and endpoint.is_websocket:
        return f"{here} is an MQTT port without WebSocket. Leave --websocket out, or give the HTTP port."
    if found.protocol is Protocol.HTTP and _is_mqtt(endpoint):
        whose = "a Penstock server" if found.is_penstock else "a web server"
        flags = "--websocket --tls" if found.is_secure else "--websocket"
        return (
            f"{here} is the HTTP port of {whose}. {_port_advice(endpoint)}, or speak MQTT there with {flags}."
        )
    if found.protocol is not (Protocol.MQTT if _is_mqtt(endpoint) else Protocol.HTTP):
        article = "an" if found.protocol is Protocol.MQTT else "a"
        return f"{here} is {article} {found.protocol} port. {_port_advice(endpoint)}."
    if found.is_secure and not endpoint.is_secure:
        return f"{here} speaks TLS. Add --tls, or write the address with {endpoint.scheme}s://."
    if endpoint.is_secure and not found.is_secure:
        return f"{here} speaks {found.protocol} without TLS. Leave --tls out, or find the port that has it."
    return None


def _explain_no_connection(error: PenstockError, endpoint: Endpoint) -> str:
    """Advice when there is no connection, or both sides speak different protocols."""
    words = str(error).removesuffix("; is this its HTTP port?")
    if "certificate" in words:
        return f"{words}. --ca-file takes the certificate of the CA that signed it."
    if "no host" in words:
        return f"{words}. Check how it is written."
    if " within " in words:
        return f"{words}. Check host and port; a firewall may be between."
    found = identify(endpoint.host, endpoint.port)
    if found.protocol is Protocol.NOTHING:
        return f"{words}. Is a server running there? `penstock serve` starts one."
    if found.protocol is Protocol.UNKNOWN:
        return f"{words}. Port {endpoint.port} speaks neither HTTP nor MQTT: check host and port."
    if endpoint.scheme.startswith("mqtt") or found.is_penstock:
        return describe_mismatch(found, endpoint) or f"{words}."
    return describe_mismatch(found, endpoint) or _not_penstock(endpoint)


def _not_penstock(endpoint: Endpoint) -> str:
    here = f"{endpoint.host}:{endpoint.port}"
    return f"{here} is the port of a web server that is not Penstock. Check host and port."


def _credentials_advice(server: ServerFlags) -> str:
    return "Check --user and --password." if server.user else "Give --user and --password-file."


def _port_advice(endpoint: Endpoint) -> str:
    name = "MQTT" if _is_mqtt(endpoint) else "HTTP"
    return f"Give the {name} port with --port: {OWN_PORTS[endpoint.scheme]}, unless it was changed"


def _is_mqtt(endpoint: Endpoint) -> bool:
    return endpoint.scheme in ("mqtt", "mqtts")
