"""`penstock acl test`: rights of a user, tried on the files alone."""

from pathlib import Path

import msgspec
import pytest

from penstock.cli import main
from penstock.core.access.passwords import hash_password

pytestmark = pytest.mark.usefixtures("clean_environment")

RULES = """\
anonymous
subscribe open/#
user ann
publish sensors/%c/+
user *
subscribe news
"""


@pytest.fixture
def acl(tmp_path: Path) -> Path:
    file = tmp_path / "acl"
    file.write_text(RULES)
    return file


def answer_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["acl", "test", *words])
    output = capsys.readouterr()
    return int(ended.value.code or 0), output.out + output.err


@pytest.mark.parametrize(
    ("words", "is_allowed"),
    [
        ("ann publish sensors/pump/heat --client-id pump", True),
        ("ann publish sensors/pump/heat", False),
        ("ann subscribe news", True),
        ("ann subscribe $share/group/news", True),
        ("bob publish sensors/pump/heat --client-id pump", False),
        ("- subscribe open/door", True),
        ("- publish open/door", False),
    ],
)
def test_an_access_list_alone_decides(
    words: str, is_allowed: bool, acl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = answer_of(capsys, *words.split(), "--acl-file", str(acl))
    assert (code, text) == (
        (0, "allowed: a rule allows it\n") if is_allowed else (1, "refused: no rule allows it\n")
    )


def test_users_are_those_of_the_settings(
    acl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:{hash_password(b'secret')}\n")
    there = ("--set", f"access.acl_file={acl}", "--set", f"access.password_file={users}")
    assert answer_of(capsys, "ann", "subscribe", "news", *there) == (0, "allowed: a rule allows it\n")
    assert answer_of(capsys, "bob", "subscribe", "news", *there) == (
        1,
        "refused: user 'bob' is not in the password file\n",
    )
    code, text = answer_of(capsys, "-", "subscribe", "open/a", *there, "-o", "json")
    assert code == 1
    assert msgspec.json.decode(text)["reason"] == "clients without a user name cannot connect"


def test_without_an_access_list_everything_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer_of(capsys, "ann", "publish", "a") == (0, "allowed: there is no access list\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [("ann read a", 2, "write publish or subscribe"), ("ann publish a/#", 1, "a topic holds no + or #")],
)
def test_what_is_no_action_or_no_topic_is_refused(
    words: str, code: int, says: str, acl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, text = answer_of(capsys, *words.split(), "--acl-file", str(acl))
    assert ended == code
    assert says in text
