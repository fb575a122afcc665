"""What the tests of the bench share."""

from collections.abc import Iterator

import pytest

from penstock.cli.bench.building import build_program
from penstock.cli.bench.load import LoadGenerator


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadGenerator]:
    """A load generator whose runs are as short as can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield LoadGenerator(build_program(lambda _: None), cpu=None, duration_s=0.2, warm_s=0.05)
