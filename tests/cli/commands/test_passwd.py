"""`penstock passwd` on real files, and its questions on a real terminal."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from penstock.cli import main
from penstock.cli.commands.passwd import passwd
from penstock.common.scram import ITERATIONS, ScramClient
from penstock.core.access.file_access import FileAccess
from penstock.core.access.passwords import is_password, read_passwords
from penstock.errors import BadCredentials, InvalidConfig

app = typer.Typer()
app.command()(passwd)

STORED = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$Yz4Y0YzqT1c2bJ0mU6jXEw"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def run(*words: str | Path, password: str | bytes = "") -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=password)


def complaint(result: Result) -> str:
    assert result.exit_code == 1
    assert isinstance(result.exception, InvalidConfig)
    return str(result.exception)


def proves(file: Path, user: str, password: str) -> bool:
    """Whether this password can be proven to a server with this file."""
    exchange = FileAccess.load(file, None, False).exchange("SCRAM-SHA-256")
    assert exchange is not None
    client = ScramClient(user, password)
    try:
        client.check(exchange.respond(client.prove(exchange.respond(client.begin()))))
    except BadCredentials:
        return False
    return exchange.user == user


def test_the_first_user_makes_the_file(file: Path) -> None:
    result = run(file, "alice", "--stdin", password="secret\n")
    assert (result.exit_code, result.output) == (0, f"added alice in {file}\n")
    access = FileAccess.load(file, None, False)
    assert access.verify("alice", b"secret")
    assert not access.verify("alice", b"secret\n")


def test_only_the_owner_may_read_the_file(file: Path) -> None:
    file.touch(mode=0o644)
    assert run(file, "alice", "--stdin", password="secret\n").exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_new_user_is_added_below_the_others(file: Path) -> None:
    before = f"# ours\r\nbob:{STORED}\n\n# odd \u2028 line\nnonsense"
    file.write_bytes(before.encode())
    assert run(file, "alice", "--stdin", password="secret\n").exit_code == 0
    assert file.read_bytes().decode().startswith(f"{before}\nalice:$argon2id$")
    assert file.read_bytes().count(b"\n") == before.count("\n") + 2


def test_a_changed_user_keeps_its_place_and_has_one_line(file: Path) -> None:
    file.write_text(f"alice:{STORED}\nbob:{STORED}\n# alice:old\nalice:{STORED}\nalice2:{STORED}\n")
    result = run(file, "alice", "--stdin", password="new")
    assert result.output == f"changed alice in {file}\n"
    first, *rest = file.read_text().splitlines()
    assert rest == [f"bob:{STORED}", "# alice:old", f"alice2:{STORED}"]
    assert is_password(b"new", first.removeprefix("alice:"))


def test_a_removed_user_is_gone_and_the_others_stay(file: Path) -> None:
    file.write_text(f"# ours\nalice:{STORED}\nbob:{STORED}\n")
    result = run(file, "alice", "--delete")
    assert (result.exit_code, result.output) == (0, f"removed alice from {file}\n")
    assert file.read_text() == f"# ours\nbob:{STORED}\n"


def test_the_last_user_leaves_a_file_that_can_be_read(file: Path) -> None:
    file.write_text(f"alice:{STORED}\n")
    assert run(file, "alice", "--delete").exit_code == 0
    assert read_passwords(file) == {}
    assert run(file, "bob", "--stdin", password="x\n").exit_code == 0
    assert list(read_passwords(file)) == ["bob"]


@pytest.mark.parametrize("text", [None, f"bob:{STORED}\n"])
def test_removing_an_unknown_user_is_an_error(file: Path, text: str | None) -> None:
    if text is not None:
        file.write_text(text)
    assert "no user 'alice'" in complaint(run(file, "alice", "--delete"))
    assert (file.read_text() if file.exists() else None) == text


@pytest.mark.parametrize("user", ["", "*", "a:b", "#alice", " alice", "a\nb"])
def test_names_that_the_file_cannot_hold_are_refused(file: Path, user: str) -> None:
    assert "user name" in complaint(run(file, user, "--stdin", password="secret\n"))
    assert not file.exists()


@pytest.mark.parametrize("password", ["", "\n", "\r\n", "x" * 65536])
def test_passwords_that_no_client_can_use_are_refused(file: Path, password: str) -> None:
    assert "password" in complaint(run(file, "alice", "--stdin", password=password))
    assert not file.exists()


@pytest.mark.parametrize("given", [b"\xff \xe9\r\nsecond line\n", b"\xff \xe9"])
def test_one_line_of_standard_input_is_the_password_byte_for_byte(file: Path, given: bytes) -> None:
    assert run(file, "alice", "--stdin", password=given).exit_code == 0
    assert is_password(b"\xff \xe9", read_passwords(file)["alice"].hash)


def test_without_a_terminal_the_way_out_is_named(file: Path) -> None:
    assert "--stdin" in complaint(run(file, "alice", password="secret\nsecret\n"))


@pytest.mark.parametrize("flag", ["--stdin", "--scram", "--no-scram"])
def test_delete_goes_with_nothing_that_is_about_a_password(file: Path, flag: str) -> None:
    file.write_text(f"alice:{STORED}\n")
    assert "--delete" in complaint(run(file, "alice", "--delete", flag, password="x\n"))
    assert file.read_text() == f"alice:{STORED}\n"


def test_with_scram_the_password_can_also_be_proven(file: Path) -> None:
    result = run(file, "alice", "--stdin", "--scram", password="secret\n")
    assert (result.exit_code, result.output) == (0, f"added alice in {file}, also for SCRAM-SHA-256\n")
    [line] = file.read_text().splitlines()
    assert f":$scram-sha-256$i={ITERATIONS},s=" in line
    assert FileAccess.load(file, None, False).verify("alice", b"secret")
    assert proves(file, "alice", "secret")
    assert not proves(file, "alice", "Secret")


def test_a_new_password_can_be_proven_where_the_old_one_could(file: Path) -> None:
    run(file, "alice", "--stdin", "--scram", password="old\n")
    run(file, "bob", "--stdin", password="old\n")
    assert run(file, "alice", "--stdin", password="new\n").output.endswith("also for SCRAM-SHA-256\n")
    assert run(file, "bob", "--stdin", password="new\n").output == f"changed bob in {file}\n"
    assert proves(file, "alice", "new")
    assert not proves(file, "alice", "old")
    assert not proves(file, "bob", "new")


def test_scram_can_be_given_later_and_taken_away(file: Path) -> None:
    run(file, "alice", "--stdin", password="secret\n")
    run(file, "alice", "--stdin", "--scram", password="secret\n")
    assert proves(file, "alice", "secret")
    result = run(file, "alice", "--stdin", "--no-scram", password="secret\n")
    assert result.output == f"changed alice in {file}\n"
    assert "scram" not in file.read_text()
    assert FileAccess.load(file, None, False).verify("alice", b"secret")


@pytest.mark.parametrize("password", [b"\xff", b"bell\x07", "\U0001f600".encode()])
def test_a_password_that_scram_does_not_allow_is_refused_and_not_shown(file: Path, password: bytes) -> None:
    text = complaint(run(file, "alice", "--stdin", "--scram", password=password))
    assert "--no-scram" in text
    assert not any(word in text for word in ("ff", "07", "7", "1F600", "\U0001f600"))
    assert not file.exists()
    assert run(file, "alice", "--stdin", password=password).exit_code == 0


@pytest.mark.parametrize("user", ["Zoe\u0308", "x" * 513])
def test_a_name_that_scram_would_change_is_refused_before_the_password_is_asked(
    file: Path, user: str
) -> None:
    assert "name for SCRAM" in complaint(run(file, user, "--scram"))
    assert run(file, user, "--stdin", password="secret\n").exit_code == 0


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    file.write_text(f"bob:{STORED}\n")
    (tmp_path / "link").symlink_to(file)
    assert run(tmp_path / "link", "alice", "--stdin", password="secret\n").exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert list(read_passwords(file)) == ["bob", "alice"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_the_file_keeps_its_owner(file: Path) -> None:
    file.write_text(f"bob:{STORED}\n")
    os.chown(file, 1234, 1235)
    assert run(file, "alice", "--stdin", password="secret\n").exit_code == 0
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1235)


def test_nothing_is_left_behind(file: Path, tmp_path: Path) -> None:
    run(file, "alice", "--stdin", password="secret\n")
    run(file, "alice", "--delete")
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "users"
    assert f"{file}: cannot be written" in complaint(run(file, "alice", "--stdin", password="secret\n"))
    assert "cannot be read" in complaint(run(tmp_path, "alice", "--stdin", password="secret\n"))


def test_a_file_that_is_not_text_is_left_alone(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\n")
    assert "not UTF-8" in complaint(run(file, "alice", "--stdin", password="secret\n"))
    assert file.read_bytes() == b"\xff\xfe\n"


def test_an_error_is_one_line_for_people(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["passwd", str(file), "alice", "--delete"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: {file}: there is no user 'alice'\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal that a test can type on")
def test_a_terminal_is_asked_twice_and_shows_no_password(file: Path) -> None:
    keyboard, terminal = os.openpty()
    program = "from penstock.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "passwd", str(file), "alice"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    ) as process:
        os.close(terminal)
        shown = b""
        for question, answer in (
            (b"Password for alice: ", b"secret\n"),
            (b"Once more: ", b"sceret\n"),  # a slip: asked from the start again
            (b"Password for alice: ", b"secret\n"),
            (b"Once more: ", b"secret\n"),
            (b"added alice", b""),
        ):
            shown += type_after(keyboard, question, answer)
        assert process.wait(10) == 0
    os.close(keyboard)
    assert b"secret" not in shown and b"sceret" not in shown
    assert is_password(b"secret", read_passwords(file)["alice"].hash)


def type_after(keyboard: int, question: bytes, answer: bytes) -> bytes:
    """Wait until a question is shown, then type; tell what was shown."""
    shown = b""
    while question not in shown:
        shown += os.read(keyboard, 1024)
    os.write(keyboard, answer)
    return shown


def test_json_says_what_was_done(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    done = [
        run(file, "ann", "--stdin", "-o", "json", "--scram", password="one"),
        run(file, "ann", "--stdin", "-o", "json", password="two"),
        run(file, "ann", "--delete", "-o", "json"),
    ]
    told = [json.loads(each.stdout) for each in done]
    assert [(each["action"], each["user"], each["scram"]) for each in told] == [
        ("added", "ann", True),
        ("changed", "ann", True),
        ("removed", "ann", False),
    ]
    assert {each["file"] for each in told} == {str(file)}
