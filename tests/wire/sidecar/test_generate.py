"""What is committed beside the `.proto` files is what they are compiled to."""

from pathlib import Path

import pytest

from penstock.wire.sidecar.generate import HERE, MESSAGES, NAMES, compile_to


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    compile_to(folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_is_what_the_file_says(compiled: Path, name: str) -> None:
    assert (MESSAGES / f"{name}.binpb").read_bytes() == (compiled / f"{name}.binpb").read_bytes()
    assert (MESSAGES / f"{name}.pyi").read_text() == (compiled / f"{name}.pyi").read_text()


def test_every_file_is_compiled() -> None:
    assert sorted(path.stem for path in HERE.glob("*.proto")) == sorted(NAMES)
