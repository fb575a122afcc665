"""Drawing of a view on a terminal of any size: topics take the room that is left."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.commands.top.view import Loss, Order, TopicLine, View
from penstock.cli.output import text_of
from penstock.cli.views import door_text
from penstock.common.text import count_text, duration_text, milliseconds_text, rate_text, size_text

WIDE = 100
"""Width from which two tables fit beside each other."""
MOST_SLOW = 5
MOST_LOSSES = 5
ELEVATED, CRITICAL = "yellow", "red"
LATENCY_P95_MS = (100.0, 500.0)
"""Thresholds of the 95th percentile: elevated, critical."""
SATURATION = (0.25, 0.75)
"""Thresholds of an outbox, as a share of its limit."""
HELP = "q quit   ←/→ or s sort   space pause"


def draw(view: View, console: Console, order: Order, note: str | None, is_paused: bool) -> RenderableType:
    """Draw the view, cut to the size of the terminal.

    Args:
        note: an error, shown with the last view there was.
    """
    above: list[RenderableType] = [_title(view, is_paused), *_summary(view)]
    if note is not None:
        above.append(Text(note, style="bold red", overflow="ellipsis", no_wrap=True))
    above += [Text(""), _middle(view, console.width)]
    if view.slow:
        above += [Text(""), _slow(view)]
    used = sum(len(console.render_lines(each, pad=False)) for each in above)
    room = console.height - used - 3  # an empty line, the names of the columns, the help
    topics = _topics(view.busiest[: max(room, 0)], console.width, order)
    return Group(*above, Text(""), topics, Text(HELP, style="dim", no_wrap=True, overflow="ellipsis"))


def _title(view: View, is_paused: bool) -> Text:
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(f"Penstock {view.version}", style="bold")
    title.append("  paused" if is_paused else "", style="bold yellow")
    title.append(f"  {text_of(view.node_id)}  {view.address}  up {duration_text(view.uptime_s)}")
    return title.append(f"  {view.at:%H:%M:%S} UTC", style="dim")


def _summary(view: View) -> list[Text]:
    """Three lines of figures."""
    cpu = "-" if view.cpu_percent is None else f"{view.cpu_percent:.0f}%"
    files = f"{count_text(view.open_files)} of {count_text(view.max_files)}"
    first = f"clients {view.clients:,}  subscriptions {view.subscriptions:,}  topics {view.topics:,}"
    first += f"  retained {view.retained:,}  CPU {cpu}  memory {size_text(view.memory_bytes)}  files {files}"
    second = f"published {rate_text(view.published_per_s)}/s  delivered {rate_text(view.delivered_per_s)}/s"
    second += f"  dropped {rate_text(view.dropped_per_s)}/s  expired {rate_text(view.expired_per_s)}/s"
    second += f"  in {size_text(view.received_bytes_per_s)}/s  out {size_text(view.sent_bytes_per_s)}/s"
    lines = [first, second, f"{_latency(view)}  {_log(view)}"]
    return [Text(line) for line in lines]


def _latency(view: View) -> str:
    if view.latency_ms is None:
        return "latency -"
    names = ("avg", "p50", "p95", "p99")
    times = (f"{name} {milliseconds_text(view.latency_ms.get(name))}" for name in names)
    return f"latency {' '.join(times)}"


def _log(view: View) -> str:
    log = view.log
    if not log.get("durable"):
        return "log in memory"
    state = "FAILING" if log.get("failing") else "on disk"
    return (
        f"log {state}, to offset {count_text(log.get('last_offset'))}, {size_text(log.get('stored_bytes'))}"
    )


def _middle(view: View, width: int) -> RenderableType:
    """Doors, and what was not delivered: side by side where there is room."""
    doors, losses = _doors(view), _losses(view.not_delivered[:MOST_LOSSES])
    if width < WIDE:
        return Group(doors, Text(""), losses) if view.not_delivered else doors
    beside = Table.grid(padding=(0, 6))
    beside.add_row(doors, losses)
    return beside


def _doors(view: View) -> Table:
    table = _table("door", "in/s", "out/s", "connections")
    for door in view.doors:
        table.add_row(
            door_text(door.door),
            rate_text(door.published_per_s),
            rate_text(door.delivered_per_s),
            count_text(door.connections),
        )
    return table


def _losses(losses: Sequence[Loss]) -> RenderableType:
    if not losses:
        return Text("nothing was left undelivered", style="dim")
    table = _table("not delivered", "/s", "since start")
    for loss in losses:
        style = CRITICAL if loss.per_s else None
        table.add_row(Text(loss.reason), rate_text(loss.per_s), count_text(loss.total), style=style)
    return table


def _slow(view: View) -> Table:
    table = _table("slow subscriber", "waiting", "bytes", "oldest", "dropped", "policy")
    for row in view.slow[:MOST_SLOW]:
        table.add_row(
            Text(text_of(row.get("client_id"))),
            count_text(row.get("waiting_messages")),
            size_text(row.get("waiting_bytes")),
            duration_text(row.get("oldest_age_s")),
            count_text(row.get("dropped")),
            Text(text_of(row.get("policy"))),
            style=ELEVATED if row.get("is_slow") else "dim",
        )
    return table


def _topics(lines: Sequence[TopicLine], width: int, order: Order) -> Table:
    titles = {
        "topic": Order.NAME,
        "in/s": Order.PUBLISHED,
        "out/s": Order.DELIVERED,
        "dropped/s": Order.DROPPED,
        "queue": Order.DEPTH,
        "p95": Order.LATENCY,
        "subscribers": None,
    }
    shown = [title for title in titles if width >= WIDE or title != "subscribers"]
    table = _table(*(f"{title}▾" if titles[title] is order else title for title in shown))
    for line in lines:
        cells = [
            Text(text_of(line.topic)),
            Text(rate_text(line.published_per_s)),
            Text(rate_text(line.delivered_per_s)),
            Text(rate_text(line.dropped_per_s), style=CRITICAL if line.dropped_per_s else ""),
            _depth(line),
            _latency_of(line),
            Text(count_text(line.subscribers)),
        ]
        table.add_row(*cells[: len(shown)])
    return table


def _depth(line: TopicLine) -> Text:
    share = line.queue_depth / line.queue_max_size if line.queue_max_size else 0.0
    return Text(count_text(line.queue_depth), style=_level(share, SATURATION))


def _latency_of(line: TopicLine) -> Text:
    known = line.latency_p95_ms or None  # nothing was delivered yet
    return Text(milliseconds_text(known), style=_level(line.latency_p95_ms, LATENCY_P95_MS))


def _level(value: float, thresholds: tuple[float, float]) -> str:
    elevated, critical = thresholds
    return CRITICAL if value >= critical else ELEVATED if value >= elevated else ""


def _table(first: str, *numbers: str) -> Table:
    """A table of names and numbers; names are cut if there is no room."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True, overflow="ellipsis", min_width=12)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table
