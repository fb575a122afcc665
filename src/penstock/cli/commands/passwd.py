"""`penstock passwd`: add, change or remove a user in a password file.

The password is never on the command line, where other users of the machine could read it. The file is
replaced atomically and readable by its owner alone, so a server that reads it at that moment sees the old or
the new one. All other lines stay as they are, comments and mistakes included.

SCRAM keys are derived from the password, so a change of the password renews those of the user.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated

import msgspec
import typer
from msgspec import Struct

from penstock.cli.output import Output, OutputOption
from penstock.common.scram import METHOD, make_keys
from penstock.core.access.identity import is_user_name
from penstock.core.access.passwords import SCRAM_PREFIX, check_scram_name, encode_keys, hash_password
from penstock.errors import InvalidConfig

MAX_PASSWORD_BYTES = 65535
"""No MQTT client can send a longer one."""


def passwd(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The password file; created if it is missing.")
    ],
    user: Annotated[str, typer.Argument(metavar="USER", help="The name of the user.")],
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the password from standard input.")] = False,
    scram: Annotated[
        bool | None,
        typer.Option("--scram/--no-scram", help="Also store SCRAM keys for the user. Default: as before."),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Add, change or remove a user in a password file."""
    if not is_user_name(user):
        raise InvalidConfig(
            f"{user!r} cannot be a user name: it is empty, is * or has : # or odd blanks in it"
        )
    if delete and (stdin or scram is not None):
        raise InvalidConfig("--delete needs no password, so it does not go with --stdin or --scram")
    lines = read_lines(file)
    is_known = bool(lines_of(user, lines))
    if delete:
        if not is_known:
            raise InvalidConfig(f"{file}: there is no user {user!r}")
        replace_file(file, [line for line in lines if not is_line_of(user, line)])
        report(Change("removed", user, str(file)), output)
        return
    has_scram = any(map(is_for_scram, lines_of(user, lines))) if scram is None else scram
    if has_scram:
        check_name(user)
    password = read_password() if stdin else ask_password(user)
    line = f"{user}:{hash_password(password)}" + (f":{scram_field(password)}" if has_scram else "")
    replace_file(file, with_line(lines, user, line))
    report(Change("changed" if is_known else "added", user, str(file), has_scram), output)


class Change(Struct, frozen=True):
    """Change of the file."""

    action: str
    user: str
    file: str
    scram: bool = False
    """True if the user has SCRAM keys."""


def report(change: Change, output: Output) -> None:
    """Print the change."""
    if output is Output.JSON:
        print(msgspec.json.encode(change).decode())
        return
    where = f"from {change.file}" if change.action == "removed" else f"in {change.file}"
    print(f"{change.action} {change.user} {where}" + (f", also for {METHOD}" if change.scram else ""))


def read_lines(file: Path) -> list[str]:
    """The lines of the password file; none if there is no file yet."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidConfig(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{file}: this is not UTF-8, so it is not a password file") from error
    return text.removesuffix("\n").split("\n") if text else []


def is_line_of(user: str, line: str) -> bool:
    """True for a line of this user."""
    name, colon, _ = line.strip().partition(":")
    return bool(colon) and name == user


def lines_of(user: str, lines: list[str]) -> list[str]:
    """The lines of this user; an edited file may have several."""
    return [line for line in lines if is_line_of(user, line)]


def is_for_scram(line: str) -> bool:
    """True for a line with SCRAM keys."""
    return f":{SCRAM_PREFIX}" in line


def check_name(user: str) -> None:
    """Refuse a name that SCRAM clients could not send."""
    try:
        check_scram_name(user)
    except ValueError as error:
        raise InvalidConfig(
            f"{user!r} cannot be a name for SCRAM: {error}; --no-scram does without"
        ) from None


def scram_field(password: bytes) -> str:
    """The field of a line with the SCRAM keys of a password."""
    try:
        return encode_keys(make_keys(password.decode()))
    except ValueError:  # the characters are part of the password, and not printed
        text = "the password has characters that SCRAM does not allow; --no-scram does without"
        raise InvalidConfig(text) from None


def with_line(lines: list[str], user: str, line: str) -> list[str]:
    """Put a line where the user's first one is, or at the end; a user has one line."""
    places = [place for place, each in enumerate(lines) if is_line_of(user, each)]
    place = places[0] if places else len(lines)
    return [*lines[:place], line, *(each for each in lines[place:] if not is_line_of(user, each))]


def read_password() -> bytes:
    """Read one line from standard input."""
    line = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES + 3)
    return check_password(line.removesuffix(b"\n").removesuffix(b"\r"))


def ask_password(user: str) -> bytes:
    """Prompt for the password twice on a terminal."""
    if not sys.stdin.isatty():
        raise InvalidConfig("there is no terminal to prompt for a password: give it with --stdin")
    password: str = typer.prompt(f"Password for {user}", hide_input=True, confirmation_prompt="Once more")
    return check_password(password.encode("utf-8", "surrogateescape"))


def check_password(password: bytes) -> bytes:
    """Refuse a password that no client could use."""
    if not password:
        raise InvalidConfig("the password is empty, and empty passwords are never accepted")
    if len(password) > MAX_PASSWORD_BYTES:
        raise InvalidConfig(
            f"the password has more than {MAX_PASSWORD_BYTES} bytes, which no client could send"
        )
    return password


def replace_file(file: Path, lines: list[str]) -> None:
    """Replace a file atomically."""
    file = file.resolve()  # a link stays a link
    try:
        handle, name = mkstemp(dir=file.parent, prefix=f".{file.name}.")  # mode 0600
    except OSError as error:
        raise InvalidConfig(f"{file}: cannot be written: {error.strerror}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as new:
            new.writelines(f"{line}\n" for line in lines)
            new.flush()
            os.fsync(new.fileno())
        keep_owner(file, temporary)
        temporary.replace(file)
    except OSError as error:
        raise InvalidConfig(f"{file}: cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def keep_owner(file: Path, temporary: Path) -> None:
    """Give the new file to the owner of the old one: root may edit what the server has to read."""
    with suppress(FileNotFoundError):
        old = file.stat()
        if (old.st_uid, old.st_gid) != (temporary.stat().st_uid, temporary.stat().st_gid):
            os.chown(temporary, old.st_uid, old.st_gid)
