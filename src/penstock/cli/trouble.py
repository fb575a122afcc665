"""What a command says when it could not do its work: what happened, and what to try, in one line."""

from penstock.cli.connection import ServerFlags
from penstock.cli.http import HttpServer
from penstock.cli.mqtt import MqttServer
from penstock.cli.places import OWN_PORTS, Place
from penstock.cli.speaking import Protocol, Speaker, identify
from penstock.client import ConnectionLost, ConnectionRefused, HttpRefused, RequestRefused
from penstock.errors import BadCredentials, NotAuthorized, PenstockError, ShuttingDown
from penstock.wire.mqtt.reasons import ReasonCode

_NOT_LET_IN = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)
_NOT_NOW = (ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_BUSY)
_UNAVAILABLE = 503
_NO_SUCH_PATH = ("not-found", "request-refused")
_IN_OTHER_WORDS = " answered with "
"""In the text of an error that was no error of Penstock's: something else may have written it."""
_LATER = "It is about to stop, or has too much to do: try again in a while."


def explain_mqtt(error: PenstockError, server: MqttServer, place: Place) -> str:
    """What to tell who wanted to speak MQTT."""
    reason = getattr(error, "reason", None)
    if isinstance(error, ConnectionRefused):
        if reason is None:
            return _explain_silence(error, place)
        if reason in _NOT_LET_IN:
            return f"the server does not let {server.who} in: {error}. {_check_who(server)}"
        if reason in _NOT_NOW:
            return f"the server refused the connection: {error}. {_LATER}"
        return f"the server refused the connection: {error}."
    if isinstance(error, RequestRefused) and reason == ReasonCode.NOT_AUTHORIZED:
        return f"{error}. {server.who} has no right to do this: see the server's access list."
    if isinstance(error, ConnectionLost) and reason in _NOT_NOW:
        return f"{error}. {_LATER}"
    return str(error)


def explain_http(error: PenstockError, server: HttpServer, place: Place) -> str:
    """What to tell who asked over HTTP."""
    if isinstance(error, HttpRefused) and _IN_OTHER_WORDS in str(error):
        found = identify(place.host, place.port)
        if not found.is_penstock:
            return describe(found, place) or _not_ours(place)
    if error.code == BadCredentials.code:
        return f"the server does not let {server.who} in: {error}. {_check_who(server)}"
    if error.code == NotAuthorized.code:
        return f"{server.who} is not allowed to do this: {error}."
    if error.code == ShuttingDown.code or getattr(error, "status", None) == _UNAVAILABLE:
        return f"{error}. {_LATER}"
    if isinstance(error, HttpRefused) and error.status == 404 and error.code in _NO_SUCH_PATH:
        return f"{error}. A server with http.admin_port answers this there: try --port."
    if isinstance(error, ConnectionRefused | ConnectionLost):
        return _explain_silence(error, place)
    return str(error)


def _not_ours(place: Place) -> str:
    return f"{place.host}:{place.port} is the port of a web server that is not Penstock. Check host and port."


def _check_who(server: ServerFlags) -> str:
    return "Check --user and --password." if server.user else "Give --user and --password-file."


def _explain_silence(error: PenstockError, place: Place) -> str:
    """What to try when there is no connection, or none on which both sides understand each other."""
    words = str(error).removesuffix("; is this its HTTP port?")
    if "certificate" in words:
        return f"{words}. --ca-file takes the certificate of whoever signed it."
    if "no host" in words:
        return f"{words}. Check how it is written."
    if " within " in words:
        return f"{words}. Check host and port; a firewall may be between."
    found = identify(place.host, place.port)
    if found.protocol is Protocol.NOTHING:
        return f"{words}. Is a server running there? `penstock serve` starts one."
    if found.protocol is Protocol.UNKNOWN:
        return f"{words}. Port {place.port} speaks neither HTTP nor MQTT: check host and port."
    if place.scheme.startswith("mqtt") or found.is_penstock:
        return describe(found, place) or f"{words}."
    return describe(found, place) or _not_ours(place)


def describe(found: Speaker, place: Place) -> str | None:
    """Say that another protocol is spoken at a port, and what to do about it; None if it is the right one."""
    here = f"{place.host}:{place.port}"
    if found.protocol is Protocol.MQTT and place.is_socket:
        return f"{here} is an MQTT port without WebSocket. Leave --websocket out, or give the HTTP port."
    if found.protocol is Protocol.HTTP and _is_mqtt(place):
        whose = "a Penstock server" if found.is_penstock else "a web server"
        flags = "--websocket --tls" if found.is_secure else "--websocket"
        return f"{here} is the HTTP port of {whose}. {_usual(place)}, or speak MQTT there with {flags}."
    if found.protocol is not (Protocol.MQTT if _is_mqtt(place) else Protocol.HTTP):
        article = "an" if found.protocol is Protocol.MQTT else "a"
        return f"{here} is {article} {found.protocol} port. {_usual(place)}."
    if found.is_secure and not place.is_secure:
        return f"{here} speaks TLS. Add --tls, or write the address with {place.scheme}s://."
    if place.is_secure and not found.is_secure:
        return f"{here} speaks {found.protocol} without TLS. Leave --tls out, or find the port that has it."
    return None


def _is_mqtt(place: Place) -> bool:
    return place.scheme in ("mqtt", "mqtts")


def _usual(place: Place) -> str:
    """Which port to try in its stead."""
    name = "MQTT" if _is_mqtt(place) else "HTTP"
    return f"Give the {name} port with --port: {OWN_PORTS[place.scheme]}, unless it was changed"
