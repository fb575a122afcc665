"""Whether a server has a data directory: asking disturbs nobody."""

import fcntl
import os
from pathlib import Path
from threading import Timer

from penstock.storage.disk.layout import LOCK_FILE
from penstock.storage.disk.opening import is_served, open_store


def test_a_directory_is_served_while_it_is_open_to_write(tmp_path: Path) -> None:
    assert not is_served(tmp_path)
    store, _ = open_store(tmp_path / "data")
    assert is_served(tmp_path / "data")
    store.close()
    assert not is_served(tmp_path / "data")


def test_a_directory_that_is_read_is_not_served(tmp_path: Path) -> None:
    open_store(tmp_path / "data")[0].close()
    reader, _ = open_store(tmp_path / "data", read_only=True)
    assert not is_served(tmp_path / "data")
    reader.close()


def test_a_server_starts_although_someone_asks_at_that_moment(tmp_path: Path) -> None:
    open_store(tmp_path)[0].close()
    asking = os.open(tmp_path / LOCK_FILE, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    Timer(0.02, os.close, [asking]).start()
    open_store(tmp_path)[0].close()


def test_several_may_ask_at_once(tmp_path: Path) -> None:
    open_store(tmp_path)[0].close()
    asking = os.open(tmp_path / LOCK_FILE, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert not is_served(tmp_path)
    os.close(asking)
