"""Reader-writer lock: many shared holders, or one exclusive."""

from threading import Event, Thread

from penstock.storage.disk.rocksdb.read_write_lock import ReadWriteLock


def test_shared_holders_run_together() -> None:
    lock = ReadWriteLock()
    with lock.shared(), lock.shared():
        assert not lock.is_exclusive
    with lock.exclusive():
        assert lock.is_exclusive
    assert not lock.is_exclusive


def test_an_exclusive_holder_waits_for_shared_ones() -> None:
    lock = ReadWriteLock()
    order: list[str] = []

    def hold_exclusively() -> None:
        with lock.exclusive():
            order.append("exclusive")

    with lock.shared():
        thread = Thread(target=hold_exclusively)
        thread.start()
        thread.join(0.05)
        order.append("released")
    thread.join()
    assert order == ["released", "exclusive"]


def test_new_holders_wait_for_an_exclusive_one() -> None:
    lock = ReadWriteLock()
    order: list[str] = []
    has_begun, may_end = Event(), Event()

    def hold_exclusively() -> None:
        with lock.exclusive():
            has_begun.set()
            may_end.wait()
            order.append("exclusive")

    def hold_shared() -> None:
        with lock.shared():
            order.append("shared")

    threads = [Thread(target=hold_exclusively), Thread(target=hold_shared), Thread(target=hold_exclusively)]
    threads[0].start()
    has_begun.wait()
    threads[1].start()
    threads[1].join(0.05)
    may_end.set()
    threads[2].start()
    for thread in threads:
        thread.join()
    assert order[0] == "exclusive"
    assert sorted(order) == ["exclusive", "exclusive", "shared"]


def test_an_error_releases_the_lock() -> None:
    lock = ReadWriteLock()
    for enter in (lock.shared, lock.exclusive):
        try:
            with enter():
                raise ValueError
        except ValueError:
            pass
    with lock.exclusive():
        pass
