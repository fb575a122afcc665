"""Fixtures of the tests of the bench."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.load.build import build_program
from bench.load.generator import LoadGenerator

Compiled = Callable[..., Path]


@pytest.fixture(scope="session")
def compiled(run_folder: Path) -> Iterator[Compiled]:
    """Compiles a source of the bench, once in a run of all workers."""

    def compile_source(source: str | Path = "pubsub.c") -> Path:
        return build_program(lambda _: None, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(run_folder / "bench"))
        yield compile_source


@pytest.fixture(scope="module")
def generator(compiled: Compiled) -> LoadGenerator:
    """Load generator for brokers, with short runs."""
    program = compiled()
    assert compiled() == program
    return LoadGenerator(program, cpu=None, duration_s=0.2, warm_s=0.05)
