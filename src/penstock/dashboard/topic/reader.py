"""Where somebody is in the messages of a topic: at its end, which moves, or on a page that stays."""

from datetime import datetime

from msgspec import Struct

from penstock.client import Message
from penstock.dashboard.scrolling import (
    PAGE_SIZES,
    Page,
    Reading,
    find_oldest,
    find_time,
    first_around,
    first_before,
    follow,
    turn_to,
)


class Reader(Struct):
    """One who reads the messages of a topic. What asks the server raises what the client does."""

    topic: str
    size: int = PAGE_SIZES[0]
    is_following: bool = True
    """The newest messages are shown, as they come."""
    page: Page | None = None
    """What was shown last."""
    chosen: int | None = None
    """The sequence of the message that is shown in full."""
    note: str = ""
    """What could not be found."""

    @property
    def message(self) -> Message | None:
        """The message that is shown in full, if it is on the page."""
        messages = () if self.page is None else self.page.messages
        return next((each for each in messages if each.sequence == self.chosen), None)

    def look(self, client: Reading) -> Page:
        """What is to be shown now; a page that stays is asked for once."""
        if self.is_following or self.page is None:
            self.page = follow(client, self.topic, self.size)
        return self.page

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.is_following, self.chosen, self.note = True, None, ""

    def pause(self, chosen: int | None = None) -> None:
        """Stay on the page that is shown."""
        self.is_following, self.chosen, self.note = False, chosen, ""

    def turn_to(self, client: Reading, first: int) -> None:
        """Show the page that begins with a sequence."""
        self.pause()
        self.page = turn_to(client, self.topic, first, self.size)

    def turn_back(self, client: Reading) -> None:
        """Show the page before."""
        if self.page is not None:
            self.turn_to(client, first_before(self.page, self.size))

    def turn_on(self, client: Reading) -> None:
        """Show the page after; behind the last one is the end that moves."""
        if self.page is None or self.page.is_at_head:
            self.follow()
        else:
            self.turn_to(client, self.page.last + 1)

    def resize(self, client: Reading, size: int) -> None:
        """Show more or fewer messages at once."""
        self.size = size
        if not self.is_following and self.page is not None:
            chosen = self.chosen
            self.turn_to(client, self.page.first)
            self.chosen = chosen

    def go_to_sequence(self, client: Reading, sequence: int) -> None:
        """Show a message in full, and those around it."""
        self.turn_to(client, first_around(sequence, self.size))
        self.chosen = sequence
        if self.message is None:
            self.note = f"Message {sequence:,} is not there."

    def go_to_time(self, client: Reading, at: datetime) -> None:
        """Show the first message at a time or after it, and those around it."""
        self._go_to(
            client, find_time(client, self.topic, at), f"There is no message at {at:%F %T} UTC or after it."
        )

    def go_to_oldest(self, client: Reading) -> None:
        """Show the oldest messages that there are."""
        oldest = find_oldest(client, self.topic)
        self.turn_to(client, 1 if oldest is None else oldest)

    def _go_to(self, client: Reading, sequence: int | None, otherwise: str) -> None:
        if sequence is None:
            self.note = otherwise
        else:
            self.go_to_sequence(client, sequence)
