"""Content negotiation by the Accept header (RFC 9110, 12.5.1), without FastAPI."""

from collections.abc import Sequence


def preferred(accept: str | None, offers: Sequence[str]) -> str | None:
    """The offer that a caller likes best, the first of those that it likes as well; None if it takes none."""
    if accept is None or not accept.strip():
        return offers[0]
    wishes = _read(accept)
    best = max(offers, key=lambda offer: _liking(offer, wishes))
    return best if _liking(best, wishes) > 0 else None


def _read(accept: str) -> dict[str, float]:
    """Accepted media types, and their weights."""
    wishes: dict[str, float] = {}
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        liking = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name == "q":
                liking = _number(value)
        if kind:
            wishes[kind] = max(liking, wishes.get(kind, 0.0))
    return wishes


def _number(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _liking(offer: str, wishes: dict[str, float]) -> float:
    """The wish that names an offer most closely decides."""
    main, _, _ = offer.partition("/")
    for kind in (offer, f"{main}/*", "*/*"):
        if kind in wishes:
            return wishes[kind]
    return 0.0
