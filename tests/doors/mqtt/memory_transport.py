"""A transport in memory, for connections without a socket."""

import asyncio


class MemoryTransport(asyncio.Transport):
    """Keeps what is written until a test takes it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()
        self.is_reading_now = True
        self.has_ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.has_ended, "nothing may follow the last word"
        self.written += data

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.has_ended = True

    def abort(self) -> None:
        self.has_ended = True

    def is_closing(self) -> bool:
        return self.has_ended
