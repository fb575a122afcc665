"""`penstock passwd`: add, change or remove a user in a password file.

The password never stands on the command line, where other users of the machine could read it. The file
is replaced in one step and readable by its owner alone, so a server that reads it at that moment sees
the old or the new one. All other lines stay as they are, comments and mistakes included.

Keys for SCRAM are made from the password too, so a change makes them anew where there were some.
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
from penstock.core.identity import is_user_name
from penstock.core.passwords import SCRAM_PREFIX, check_scram_name, encode_keys, hash_password
from penstock.core.scram import METHOD, make_keys
from penstock.errors import InvalidConfig

MAX_PASSWORD_BYTES = 65535
"""No MQTT client can send a longer one."""


def passwd(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The password file; it is made if it is not there.")
    ],
    user: Annotated[str, typer.Argument(metavar="USER", help="The name of the user.")],
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the password from standard input.")] = False,
    scram: Annotated[
        bool | None,
        typer.Option(
            "--scram/--no-scram", help="Let the user also prove the password with SCRAM. Default: as before."
        ),
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
        replace(file, [line for line in lines if not is_line_of(user, line)])
        tell(Done("removed", user, str(file)), output)
        return
    has_scram = any(map(is_for_scram, lines_of(user, lines))) if scram is None else scram
    if has_scram:
        check_name(user)
    password = read_password() if stdin else ask_password(user)
    line = f"{user}:{hash_password(password)}" + (f":{scram_field(password)}" if has_scram else "")
    replace(file, with_line(lines, user, line))
    tell(Done("changed" if is_known else "added", user, str(file), has_scram), output)


class Done(Struct, frozen=True):
    """What was done to the file."""

    action: str
    user: str
    file: str
    scram: bool = False
    """Whether the user can prove the password with SCRAM as well."""


def tell(done: Done, output: Output) -> None:
    """Say what was done."""
    if output is Output.JSON:
        print(msgspec.json.encode(done).decode())
        return
    where = f"from {done.file}" if done.action == "removed" else f"in {done.file}"
    print(f"{done.action} {done.user} {where}" + (f", also for {METHOD}" if done.scram else ""))


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
    """Tell whether a line is about this user."""
    name, colon, _ = line.strip().partition(":")
    return bool(colon) and name == user


def lines_of(user: str, lines: list[str]) -> list[str]:
    """The lines about this user; a file that somebody edited may have several."""
    return [line for line in lines if is_line_of(user, line)]


def is_for_scram(line: str) -> bool:
    """Tell whether a line has keys for SCRAM."""
    return f":{SCRAM_PREFIX}" in line


def check_name(user: str) -> None:
    """Refuse a name that clients could not give with SCRAM."""
    try:
        check_scram_name(user)
    except ValueError as error:
        raise InvalidConfig(
            f"{user!r} cannot be a name for SCRAM: {error}; --no-scram does without"
        ) from None


def scram_field(password: bytes) -> str:
    """The field of a line that lets the user prove the password without sending it."""
    try:
        return encode_keys(make_keys(password.decode()))
    except ValueError:  # which characters they are is nobody else's business
        text = "the password has characters that SCRAM does not allow; --no-scram does without"
        raise InvalidConfig(text) from None


def with_line(lines: list[str], user: str, line: str) -> list[str]:
    """Put a line where the user's first one is, or at the end; a user has one line."""
    places = [place for place, each in enumerate(lines) if is_line_of(user, each)]
    place = places[0] if places else len(lines)
    return [*lines[:place], line, *(each for each in lines[place:] if not is_line_of(user, each))]


def read_password() -> bytes:
    """Take one line from standard input, without its end."""
    line = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES + 3)
    return checked(line.removesuffix(b"\n").removesuffix(b"\r"))


def ask_password(user: str) -> bytes:
    """Ask for the password twice on a terminal."""
    if not sys.stdin.isatty():
        raise InvalidConfig("there is no terminal to ask for a password: give it with --stdin")
    password: str = typer.prompt(f"Password for {user}", hide_input=True, confirmation_prompt="Once more")
    return checked(password.encode("utf-8", "surrogateescape"))


def checked(password: bytes) -> bytes:
    """Refuse a password that no client could use."""
    if not password:
        raise InvalidConfig("the password is empty, and empty passwords are never accepted")
    if len(password) > MAX_PASSWORD_BYTES:
        raise InvalidConfig(
            f"the password has more than {MAX_PASSWORD_BYTES} bytes, which no client could send"
        )
    return password


def replace(file: Path, lines: list[str]) -> None:
    """Write a new file beside the old one and put it in its place."""
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
