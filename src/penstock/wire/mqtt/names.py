"""Topic names that are checked once, and known from then on."""

from penstock.wire.mqtt.decode import check_topic_name
from penstock.wire.mqtt.primitives import decode_text

_NAMES_LIMIT = 65_536
_MARKS = 131_072
_NAME_LIMIT_BYTES = 256  # longer names are checked each time: remembered, they could fill the memory


class Names(dict[bytes, str]):
    """Topic names already checked and decoded, shared by all connections of a door.

    A dict that fills itself: a known name costs one look-up, the checks are paid twice. A name is
    remembered when it comes a second time, so that a flood of new ones does not push out those in use.
    """

    __slots__ = ("_marked", "_marks")

    def __init__(self) -> None:
        self._marks = bytearray(_MARKS)  # by hash: a name like this was seen
        self._marked = 0

    def __missing__(self, raw: bytes) -> str:
        name = decode_text(raw)
        check_topic_name(name)
        if len(raw) <= _NAME_LIMIT_BYTES and self._is_known(hash(raw) % _MARKS):
            if len(self) >= _NAMES_LIMIT:
                self.clear()
            self[raw] = name
        return name

    def _is_known(self, mark: int) -> bool:
        if self._marks[mark]:
            return True
        self._marks[mark] = 1
        self._marked += 1
        if self._marked > _MARKS // 2:  # so many that strangers are taken for known
            self._marks = bytearray(_MARKS)
            self._marked = 0
        return False
