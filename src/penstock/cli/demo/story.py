"""The first chapters and the last: the doors, the plant at work, and where to go on."""

from pathlib import Path

from penstock.cli.demo.orders import WORKERS
from penstock.cli.demo.screen import Screen
from penstock.cli.demo.server import DemoServer
from penstock.cli.demo.tally import DOORS, Tally
from penstock.cli.demo.traffic import COLUMNS, count_at_doors, door_rows, work
from penstock.cli.pipeline.options import HERE


def open_doors(server: DemoServer, screen: Screen) -> None:
    """The chapter: a server runs, and this is where."""
    screen.chapter("One server with four doors")
    screen.say("It runs in a process of its own, on free ports, with its log in a data directory:")
    screen.table(
        ("door", "address"),
        [
            ("MQTT", server.addresses["mqtt"]),
            ("gRPC", server.addresses["sidecar"]),
            ("WebSocket", server.websocket_address),
            ("HTTP long poll", f"{server.http_address}/api/v1/streams"),
        ],
    )


async def let_work(server: DemoServer, seconds: float, screen: Screen) -> Tally:
    """The chapter: live traffic at all doors, counted on both sides."""
    screen.chapter("The plant works")
    screen.say(
        f"Sensors, a controller, a web page and work orders, for {seconds:.0f} s and at all four doors."
    )
    tally = await work(server, seconds, screen)
    counted = count_at_doors(server)
    screen.table(COLUMNS, door_rows(counted))
    total = tally.published.total()
    screen.check(
        all(counted[door]["published"] == tally.published[door] for door in DOORS),
        f"the programs got {total:,} acknowledgements, and the server counts as many messages",
    )
    shares = ", ".join(f"{name} {tally.orders[name]}" for name in WORKERS)
    screen.check(
        tally.orders.total() == tally.published["streams"],
        f"{tally.orders.total()} work orders, each done once: {shares}",
    )
    return tally


def show_next_steps(folder: Path | None, program: str, screen: Screen) -> None:
    """The chapter: commands to copy."""
    data = "data" if folder is None else folder / "data"
    lake = "lake" if folder is None else folder / "lake"
    if folder is not None:
        screen.say(f"The log and the lake of this run are in {folder}.")
    screen.say("Your own server, and what you have just seen:")
    screen.show(f"{program} serve --data-dir {data}")
    screen.show(f"{program} sub 'plant/#' -v")
    screen.show(f"{program} pub plant/oven-1/temperature 221.5")
    screen.show(f"{program} top")
    screen.show(f"{program} why plant/oven-1/temperature 1")
    screen.show(f"{program} pipeline archive --lake {lake}")
    screen.show(f"{program} pipeline audit --lake {lake} --address {HERE}")
