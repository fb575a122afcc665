"""Groups of flags that several commands have: written once, as the fields of a struct.

A command takes the group as one parameter, and `spread` shows typer a flag for each of its fields:

    class Place(Group):
        host: Annotated[str, typer.Option("--host", help="Where the server is.")] = "127.0.0.1"

    @spread
    def look(name: str, *, place: Place) -> None: ...

is the command `look NAME [--host TEXT]`.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields


class Group(Struct, frozen=True, kw_only=True):
    """Flags that belong together; a field has the annotation and the default that a parameter would have."""


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Let each parameter that is a group of flags stand for these flags."""
    shape = signature(command)
    groups = {each.name: each.annotation for each in shape.parameters.values() if _is_group(each.annotation)}

    @wraps(command)
    def with_groups(*arguments: Any, **given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in group.__struct_fields__})
        command(*arguments, **given)

    flags = [flag for each in shape.parameters.values() for flag in _flags_of(each)]
    with_groups.__signature__ = Signature(flags, return_annotation=None)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {flag.name: flag.annotation for flag in flags} | {"return": None}
    return with_groups


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Group)


def _flags_of(parameter: Parameter) -> Iterator[Parameter]:
    """A parameter as typer is to see it: itself, or the fields of the group that it is."""
    if not _is_group(parameter.annotation):
        yield parameter
        return
    for field in fields(parameter.annotation):
        default = Parameter.empty if field.default is NODEFAULT else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
