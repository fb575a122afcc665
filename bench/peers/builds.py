"""Builds of peers that Debian does not have, or has in an older version.

Each is fetched in a fixed version and compiled once, into the user's cache. To measure a newer one, change
its version here.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from msgspec import Struct

from bench.artifacts import FetchError, build_once, run_command, user_cache
from bench.errors import BenchError
from bench.load.build import Say, find_program, require_program

COMPILE_S = 900
FETCH_S = 60
REASON_LINES, REASON_LENGTH = 3, 400
MOSQUITTO_VERSION = "2.1.2"
MOSQUITTO_SOURCE = (
    "pool/main/m/mosquitto/mosquitto_2.1.2.orig.tar.gz",
    "a8e37cc4c1d4141e56c5a8729c5fa36b1f0b1ca95378a12131d68f0509de122a",
)
"""Path in a Debian archive and SHA-256 of the source in Debian's next release."""
MOSQUITTO_PACKAGES = ("gcc", "libc6-dev", "make", "tar", "libcjson-dev")
MOSQUITTO_OPTIONS = ("WITH_TLS=no", "WITH_WEBSOCKETS=no", "WITH_HTTP_API=no")
"""Parts that would need further libraries, and that no scenario uses."""
NATS = ("github.com/nats-io/nats-server/v2", "v2.15.2")
DEBIAN_MAIN = ("Created-By: Packages", "Origin: Debian", "Label: Debian", "Component: main")
"""Indexes of Debian's main archive among those of apt; the label of its security archive is another."""


class Build(Struct, frozen=True):
    """A program that is compiled from fetched source."""

    name: str
    """Name of its folder in the cache, with the version."""
    program: str
    compile: Callable[[Path, Say], None]
    """Puts the program into an empty folder."""

    def require(self, say: Say) -> str:
        """Path of the program; compile it if the cache does not have it.

        Raises:
            BenchError: a tool is missing, or the source cannot be fetched or compiled.
        """

        def compile_into(folder: Path) -> None:
            say(f"compiling {self.name}: a minute or two, once")
            self.compile(folder, say)

        try:
            return str(build_once(user_cache("penstock") / self.name, compile_into) / self.program)
        except (FetchError, OSError) as error:
            raise BenchError(f"{self.name} cannot be built: {_end_of(str(error))}") from error


def _end_of(output: str) -> str:
    """Last lines of an output, which have the reason, as one."""
    return " ".join(" ".join(output.splitlines()[-REASON_LINES:]).split())[-REASON_LENGTH:]


def go_program(name: str, package: str, version: str) -> Build:
    """Program of a Go package, by the module proxy that `go env` names."""
    program = [part for part in package.split("/") if not _is_major(part)][-1]

    def compile_with_go(folder: Path, _: Say) -> None:
        if find_program("go") is None:
            raise BenchError(f"{name} needs Go to be compiled, and there is none on the PATH")
        words = ("install", "-trimpath", f"{package}@{version}")
        run_command(COMPILE_S, "go", *words, environment={"GOBIN": str(folder)})

    return Build(f"{name}-{version}", program, compile_with_go)


def _is_major(part: str) -> bool:
    """True for the part of a module path that says its major version."""
    return part.startswith("v") and part[1:].isdigit()


def debian_archive() -> str:
    """Address of the Debian archive that apt is configured with, with a slash at its end.

    Raises:
        BenchError: there is no apt, or none of its archives is such a one.
    """
    apt = find_program("apt-get")
    if apt is None:
        raise BenchError("its source is in the Debian archive of apt, and there is no apt here")
    words = [apt, "indextargets", "--format", "$(REPO_URI)", *DEBIAN_MAIN]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"apt-get did not name its archives within {FETCH_S} s") from error
    archives = [line for line in done.stdout.splitlines() if _is_fetchable(line)]
    if not archives:
        raise BenchError(
            "its source is in the Debian archive of apt, and apt has no index of one; try apt-get update"
        )
    return archives[0]


def _is_fetchable(address: str) -> bool:
    """True for what `fetch` can read: other transports of apt, and passwords, are apt's own."""
    parts = urlsplit(address)
    return parts.scheme in ("http", "https", "file") and "@" not in parts.netloc


def _compile_mosquitto(folder: Path, say: Say) -> None:
    header = "/usr/include/cjson/cJSON.h"
    for tool in ("gcc", "make", "tar"):
        require_program(tool, MOSQUITTO_PACKAGES, say, (header,))
    archive, source = folder / "source.tar.gz", folder / "source"
    path, sha256 = MOSQUITTO_SOURCE
    archive.write_bytes(fetch(debian_archive() + path, sha256))
    source.mkdir()
    run_command(COMPILE_S, "tar", "-xzf", str(archive), "--strip-components=1", "-C", str(source))
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    for part, target in (("libcommon", "libmosquitto_common.a"), ("src", "mosquitto")):
        run_command(COMPILE_S, "make", jobs, "-C", str(source / part), target, *MOSQUITTO_OPTIONS)
    (source / "src" / "mosquitto").rename(folder / "mosquitto")
    shutil.rmtree(source)
    archive.unlink()


def fetch(address: str, sha256: str) -> bytes:
    """Fetch a file.

    Raises:
        FetchError: it cannot be fetched, or is another one.
    """
    try:
        with urlopen(address, timeout=FETCH_S) as response:  # noqa: S310 - only schemes of _is_fetchable
            data: bytes = response.read()
    except (URLError, HTTPException, TimeoutError) as error:
        raise FetchError(f"{address}: {error}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise FetchError(f"{address}: not the file that was expected, by its SHA-256")
    return data


NEW_MOSQUITTO = Build(f"mosquitto-{MOSQUITTO_VERSION}", "mosquitto", _compile_mosquitto)
NEW_NATS = go_program("nats", *NATS)
