"""Native programs of the bench: compiled into the user's cache, again after each change of their source.

Load generators are written in C, because one in Python would be slower than the brokers; those for gRPC are
written in C++, from the `.proto` files of the server. Missing compilers are installed where that is possible.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.artifacts import build_once, user_cache
from bench.errors import BenchError

SOURCES = Path(__file__).parent
HEADER = SOURCES / "common.h"
PROTOS = ("nexusd.proto", "penstock.proto")
GRPC_PACKAGES = (
    "g++",
    "pkg-config",
    "protobuf-compiler",
    "protobuf-compiler-grpc",
    "libgrpc++-dev",
    "libprotobuf-dev",  # libgrpc++-dev includes its headers and does not depend on it
)
GRPC_FILES = ("/usr/include/grpcpp/grpcpp.h", "/usr/include/google/protobuf/message.h")
COMPILE_C = ("-O2",)
COMPILE_CPP = ("-std=c++20", "-O1")  # -O2 compiles half as long again, and makes nothing quicker
COMPILE_TIMEOUT_S = 300
INSTALL_TIMEOUT_S = 300

Say = Callable[[str], None]


def build_program(say: Say, source: str | Path = "pubsub.c") -> Path:
    """Compile a source file unless the cache has its program.

    Args:
        source: the name of a file beside this module, or a path; `.c` or `.cc`.
    """
    path = SOURCES / source
    if path.suffix == ".c":
        return _cached(path, [HEADER], lambda made: _compile_c(say, path, made))
    folder = Path(str(resources.files("penstock.wire.sidecar")))
    protos = [folder / proto for proto in PROTOS]
    return _cached(path, [HEADER, *protos], lambda made: _compile_cpp(say, path, protos, made))


def require_program(program: str, packages: tuple[str, ...], say: Say, files: tuple[str, ...] = ()) -> str:
    """Find a program; root on a Debian installs its packages if it is missing.

    Args:
        files: other files that have to exist.

    Raises:
        BenchError: it is missing and cannot be installed.
    """
    found, missing = _look_up(program, files)
    if found is not None and missing is None:
        return found
    advice = f"{missing} is missing; install it with: apt-get install {' '.join(packages)}"
    if os.geteuid() != 0 or find_program("apt-get") is None:
        raise BenchError(advice)
    say(f"{missing} is missing: installing {' '.join(packages)}")
    _install(packages, advice)
    found, missing = _look_up(program, files)
    if found is None or missing is not None:
        raise BenchError(advice)
    return found


def find_program(program: str) -> str | None:
    """Path of a program; servers are often in directories that are not on a user's PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/local/sbin:/usr/sbin:/sbin")


def _look_up(program: str, files: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Path of a program, and the first thing that is missing of it and its files."""
    found = find_program(program)
    absent = [file for file in files if not Path(file).exists()]
    return found, program if found is None else next(iter(absent), None)


def _install(packages: tuple[str, ...], advice: str) -> None:
    # RUNLEVEL=1 keeps the package from starting a server of its own.
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    wait_for_lock = ("-o", "DPkg::Lock::Timeout=120")
    try:
        for step in (("update",), ("install", "-y", "--no-install-recommends", *packages)):
            command = ["apt-get", "-qq", *wait_for_lock, *step]
            done = subprocess.run(
                command, env=quiet, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
            if done.returncode:
                raise BenchError(f"{advice}\n{done.stderr.strip()}")
    except subprocess.TimeoutExpired as error:
        raise BenchError(advice) from error


def _cached(source: Path, included: list[Path], compile_to: Callable[[Path], None]) -> Path:
    contents = b"".join(file.read_bytes() for file in (*included, source))
    # A suffix, because earlier versions left files without one.
    folder = user_cache("penstock") / f"{source.stem}-{hashlib.sha256(contents).hexdigest()[:16]}.built"
    return build_once(folder, lambda unfinished: compile_to(unfinished / source.stem)) / source.stem


def _compile_c(say: Say, source: Path, made: Path) -> None:
    compiler = require_program("gcc", ("gcc", "libc6-dev"), say)
    _run(source.name, compiler, *COMPILE_C, "-o", str(made), str(source))


def _compile_cpp(say: Say, source: Path, protos: list[Path], made: Path) -> None:
    require_program("protoc", GRPC_PACKAGES, say)
    require_program("pkg-config", GRPC_PACKAGES, say)
    plugin = require_program("grpc_cpp_plugin", GRPC_PACKAGES, say)
    compiler = require_program("g++", GRPC_PACKAGES, say, GRPC_FILES)
    say(f"compiling {source.name}: half a minute, once")
    libraries = _run(source.name, "pkg-config", "--cflags", "--libs", "grpc++", "protobuf").split()
    with _generated(source.name, protos, plugin) as folder:
        _run(source.name, compiler, *COMPILE_CPP, f"-I{folder}", "-o", str(made), str(source), *libraries)


@contextmanager
def _generated(name: str, protos: list[Path], plugin: str) -> Iterator[str]:
    """Folder with protoc's output, for the lite runtime, which compiles faster."""
    with TemporaryDirectory() as folder:
        outputs = (f"--cpp_out=lite:{folder}", f"--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}")
        _run(name, "protoc", f"-I{protos[0].parent}", *outputs, *(proto.name for proto in protos))
        yield folder


def _run(name: str, *command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=COMPILE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{name} is not compiled after {COMPILE_TIMEOUT_S} s") from error
    if done.returncode:
        raise BenchError(f"{name} does not compile: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()
