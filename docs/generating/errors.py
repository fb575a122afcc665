"""The catalogue of errors: codes, meanings, and how each door says them."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import penstock
from docs.generating.tables import code, sentence, table
from penstock import errors
from penstock.doors.mqtt.reason_codes import REASONS, refusal_of
from penstock.doors.sidecar.transport.status import STATUSES as GRPC_STATUSES
from penstock.errors import PenstockError
from penstock.net.http.errors import STATUSES as HTTP_STATUSES
from penstock.wire.mqtt.reasons import MqttWireError, ReasonCode

TITLES = ("code", "meaning", "MQTT 5", "gRPC", "HTTP", "try again")
ROOMS = {
    "cli": ("penstock.cli.",),
    "client": ("penstock.client.",),
    "spark": ("penstock.spark.", "penstock.lake."),
}
"""Rooms with errors of their own, beside the catalogue of the server."""
WITHOUT_A_CODE = "something went wrong that has no code of its own"
"""What the base of all errors means by itself."""


def errors_table() -> str:
    """What a server may say, and how it says it at each door."""
    return table(TITLES, (_server_row(error) for error in catalogue()))


def errors_of(room: str) -> str:
    """What happens before or behind a server: the errors of a room that is none of its doors."""
    found = [error for error in all_errors() if error.__module__.startswith(ROOMS[room])]
    rows = [(code(error.code), meaning_of(error), _again(error)) for error in one_for_each_code(found)]
    return table(("code", "meaning", "try again"), rows)


def catalogue() -> list[type[PenstockError]]:
    """The errors of the server, in the order of the source."""
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, PenstockError)]


def all_errors() -> list[type[PenstockError]]:
    """Every error of every room; a room's errors exist once it is imported."""
    for module in walk_packages(penstock.__path__, "penstock."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return sorted(set(_below(PenstockError)), key=lambda error: (error.__module__, _line(error)))


def one_for_each_code(found: list[type[PenstockError]]) -> list[type[PenstockError]]:
    """The first of those that share a code; names that begin with an underscore are nobody's."""
    public = [error for error in found if not error.__name__.startswith("_")]
    own = [error for error in public if "code" in vars(error)]
    return list({error.code: error for error in reversed(own)}.values())[::-1]


def meaning_of(error: type[PenstockError]) -> str:
    """The first sentences of its docstring, up to an empty line."""
    if error is PenstockError:
        return WITHOUT_A_CODE
    return sentence((inspect.getdoc(error) or "").partition("\n\n")[0])


def _below(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)


def _line(error: type[PenstockError]) -> int:
    """Line of its definition; the source of a compiled module lies beside it."""
    file = Path(inspect.getfile(error))
    source = file.with_name(f"{file.name.partition('.')[0]}.py").read_text(encoding="utf-8")
    found = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ClassDef))
    return next(each.lineno for each in found if each.name == error.__name__)


def _server_row(error: type[PenstockError]) -> list[str]:
    return [
        code(error.code),
        meaning_of(error),
        _reason(error),
        GRPC_STATUSES[error].name,
        str(int(HTTP_STATUSES[error.code])),
        _again(error),
    ]


def _reason(error: type[PenstockError]) -> str:
    if error is errors.WireError:
        reasons = sorted({each.reason for each in _below_wire(MqttWireError)})
        return f"{_hex(reasons[0])} to {_hex(reasons[-1])}"
    if error.code not in REASONS:
        return "-"
    usual, at_connect = REASONS[error.code], refusal_of(error())
    return _hex(usual) if usual is at_connect else f"{_hex(usual)}, in CONNACK {_hex(at_connect)}"


def _below_wire(kind: type[MqttWireError]) -> Iterator[type[MqttWireError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below_wire(child)


def _hex(reason: ReasonCode) -> str:
    return f"0x{int(reason):02X}"


def _again(error: type[PenstockError]) -> str:
    return "yes" if error.retryable else "no"
