"""Log epochs: every start is told apart from every other."""

from contextlib import AsyncExitStack
from pathlib import Path

from tests.contract.storages import OpenStorage
from tests.contract.writer import Writer


async def test_a_log_started_again_is_another_one_or_in_a_later_epoch(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    async with open_storage(tmp_path) as storage:
        log_id, epoch = storage.log.log_id, storage.log.epoch
        assert bytes.fromhex(log_id).hex() == log_id
        assert len(log_id) == 16  # what a cursor has room for
        assert epoch == 1
    async with open_storage(tmp_path) as storage:
        assert storage.log.log_id != log_id or storage.log.epoch == 2


async def test_where_an_epoch_ended_is_known_as_long_as_its_log_is(
    open_storage: OpenStorage, tmp_path: Path
) -> None:
    ends: list[int] = []
    for _ in range(3):
        async with open_storage(tmp_path) as storage:
            writer = Writer(storage)
            writer.append(b"1", b"2")
            await writer.commit()
            head = storage.log.sequencer.head
            assert storage.log.end_of(storage.log.epoch) == storage.log.last_offset == head
            assert storage.log.end_of(99) is None
            if storage.log.is_durable:
                assert [storage.log.end_of(epoch + 1) for epoch in range(len(ends))] == ends
                ends.append(head)


async def test_two_logs_are_never_taken_for_one_another(open_storage: OpenStorage, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(open_storage(tmp_path / "one"))
        other = await stack.enter_async_context(open_storage(tmp_path / "other"))
        assert one.log.log_id != other.log.log_id
