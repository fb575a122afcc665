"""Every storage that there is, for the suites of all ports."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.storages import STORAGES, OpenStorage, Storage
from tests.contract.writer import Writer


@pytest.fixture(params=STORAGES)
def open_storage(request: pytest.FixtureRequest) -> OpenStorage:
    return STORAGES[request.param]


@pytest.fixture
async def storage(open_storage: OpenStorage, tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(tmp_path / "data") as storage:
        yield storage


@pytest.fixture
def writer(storage: Storage) -> Writer:
    return Writer(storage)
