"""A cursor in a file."""

from pathlib import Path

import pytest

from penstock.client import CursorFile
from penstock.errors import InvalidCursor


def test_a_cursor_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    assert file.read() is None
    file.write("first")
    file.write("second")
    assert CursorFile(str(tmp_path / "cursor")).read() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


def test_the_old_cursor_stays_if_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    file.write("old")
    with pytest.raises(UnicodeEncodeError):
        file.write("n\u00ebw")
    assert file.read() == "old"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_file_without_a_cursor_is_no_reason_to_skip_anything(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cursor").write_bytes(content)
    with pytest.raises(InvalidCursor, match="cursor"):
        CursorFile(tmp_path / "cursor").read()
