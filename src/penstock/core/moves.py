"""What happens to deliveries, as plain numbers: the steps that are stored with each turn.

A step is a word `number << 4 | kind`. Where a delivery leaves, its offset follows, and behind that the shared
filter it came through, if it did. What steps come to is in `windows.py`.
"""

COMPLETED = 0
"""A delivery is over."""
LEFT = 1
"""A delivery left at QoS 1; one more, at QoS 2."""
RELEASED = 3
"""A delivery at QoS 2 has arrived; its number is still held."""
RECEIVED = 4
"""A message at QoS 2 came in."""
RETAINED_LEFT = 5
"""As `LEFT`, for the value of a topic."""
FORGOTTEN = 7
"""A message at QoS 2 that came in will not come again."""
SHARED_LEFT = 9
"""As `LEFT`, through a shared group."""
KIND_BITS = 4

PLAIN = (COMPLETED, RELEASED, RECEIVED, FORGOTTEN)
"""Nothing follows these."""

Step = int | str


def step(number: int, kind: int) -> int:
    """The word for one step."""
    return number << KIND_BITS | kind
