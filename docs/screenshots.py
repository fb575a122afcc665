"""Screenshots of the console and the dashboard for the docs; `make screenshots` runs it.

Load runs at every door for a minute, with one slow subscriber, and Spark archives it. Then a headless browser
opens each page. Takes about three minutes, and needs chromium with its driver.
"""

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from threading import Event, Thread
from types import ModuleType

ROOT = Path(__file__).parent.parent
sys.modules["tests"] = ModuleType("tests")  # ours: there are packages that install one of this name
sys.modules["tests"].__path__ = [str(ROOT / "tests")]

from PIL import Image  # noqa: E402
from selenium.webdriver import Chrome, ChromeOptions, ChromeService  # noqa: E402

from penstock.client import HttpClient  # noqa: E402
from tests.browser.conftest import FLAGS  # noqa: E402
from tests.dashboard.traffic import Traffic  # noqa: E402
from tests.support.servers import start  # noqa: E402

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 1366, 768
COLOURS = 128
"""Enough for tables and lines, and keeps the images small."""
LIMIT_BYTES = 150_000

QUIET_TOPICS = 2_000
SPINDLE = "plant/line-1/spindle"
ON_AIR_S = 75.0
SETTLED_S = 4.0
"""Time for a page to draw."""
PAGES = {"lake": "", "latency": "latency", "backpressure": "backpressure"}

SETTINGS = {
    "http": {"port": 0},
    "node_id": "plant-north",
    "outbox": {"messages": 400},
}


def main() -> None:
    """Take all screenshots."""
    with TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        server = start(folder, {**SETTINGS, "data_dir": str(folder / "data")}, (), {})
        running.callback(server.stop)
        address = f"http://127.0.0.1:{server.port_of('http')}"
        client = running.enter_context(HttpClient(address, client_id="line-1"))
        _prepare(client)
        running.enter_context(Traffic(server))
        running.enter_context(_spindle(address, server.port))
        began = time.monotonic()
        lake = folder / "lake"
        _archive(lake, address)
        dashboard = running.enter_context(_dashboard(folder, address, lake))
        browser = running.enter_context(_browser(folder))
        _take_console(browser, address)
        browser.get(dashboard)
        time.sleep(max(ON_AIR_S - (time.monotonic() - began), 10.0))
        for page, path in PAGES.items():
            _take(browser, f"{dashboard}/{path}", IMAGES / f"dashboard-{page}.png", SETTLED_S)


# Load


def _prepare(client: HttpClient) -> None:
    """Create many topics, most of them quiet."""
    quiet = (f"plant/line-{n // 500 + 1}/motor-{n // 10 % 50:02}/{n % 10}" for n in range(QUIET_TOPICS))
    client.publish_many({"topic": topic, "data": {"ok": True}, "retain": True} for topic in quiet)


@contextmanager
def _spindle(address: str, mqtt_port: int) -> Iterator[None]:
    """Publisher of a few messages a second, and a subscriber."""
    stopping = Event()
    chance = random.Random(7)

    def work() -> None:
        with HttpClient(address, client_id="spindle-1") as client:
            while not stopping.wait(0.1):
                state = {"rpm": chance.randint(2_940, 3_060), "celsius": round(chance.gauss(61, 2), 1)}
                client.publish(SPINDLE, {**state, "vibration": {"x": 0.02, "y": 0.03}}, retain=True)

    thread = Thread(target=work)
    thread.start()
    listen = [sys.executable, "-m", "penstock", "sub", "--port", str(mqtt_port), SPINDLE]
    listener = subprocess.Popen(listen, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        listener.terminate()
        listener.wait(20)


def _archive(lake: Path, address: str) -> None:
    """Archive the log, compute insights and audit the lake."""
    _pipeline("archive", "--lake", str(lake), "--address", address)
    _pipeline("insights", "--lake", str(lake), "--address", address)
    _pipeline("archive", "--lake", str(lake), "--address", address)
    report = _pipeline("audit", "--lake", str(lake), "--address", address, "-o", "json")
    (lake / "audit.json").write_text(report, encoding="utf-8")


def _pipeline(*words: str) -> str:
    command = [sys.executable, "-m", "penstock", "pipeline", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


# Screenshots


@contextmanager
def _dashboard(folder: Path, address: str, lake: Path) -> Iterator[str]:
    """Running dashboard; yields its address."""
    command = [sys.executable, "-m", "penstock", "dashboard", "--port", "0", "--address", address]
    process = subprocess.Popen([*command, "--lake", str(lake)], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"is at (\S+) and", line)
        assert found is not None, line
        yield found[1]
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def _browser(folder: Path) -> Iterator[Chrome]:
    """Headless Chromium."""
    options = ChromeOptions()
    options.binary_location = which("chromium") or "chromium"
    size = f"--window-size={WIDTH},{HEIGHT}"
    for flag in (*FLAGS, "--hide-scrollbars", size, f"--user-data-dir={folder / 'chromium'}"):
        options.add_argument(flag)
    running = Chrome(options=options, service=ChromeService(which("chromedriver") or "chromedriver"))
    metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    running.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield running
    finally:
        running.quit()


def _take_console(browser: Chrome, address: str) -> None:
    """Take the screenshots of the console."""
    pages = {"overview": "overview", "topic": f"topics/{SPINDLE}", "live": "live?filter=plant/%2B/%23"}
    for name, page in pages.items():
        browser.get("about:blank")  # or another page of the console would not be loaded anew
        _take(browser, f"{address}/#/{page}", IMAGES / f"console-{name}.png", SETTLED_S, ".top .state")


def _take(browser: Chrome, address: str, path: Path, settled_s: float, drawn: str = ".server .state") -> None:
    """Take a screenshot of a page once it is drawn, which is when `drawn` selects an element."""
    browser.get(address)
    deadline = time.monotonic() + 30
    while not browser.execute_script("return Boolean(document.querySelector(arguments[0]))", drawn):
        assert time.monotonic() < deadline, f"{address} is not drawn"
        time.sleep(0.1)
    time.sleep(settled_s)
    path.parent.mkdir(exist_ok=True)
    picture = Image.open(BytesIO(browser.get_screenshot_as_png()))
    small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    size = path.stat().st_size
    assert size < LIMIT_BYTES, f"{path.name} has {size:,} bytes"
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")


if __name__ == "__main__":
    main()
