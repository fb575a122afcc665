"""The bench's own programs, compiled once into the user's cache and again after each change of their source.

Generators of load are written in C, because a generator in Python would be slower than the brokers; what
speaks gRPC is written in C++, from the same `.proto` files as the server.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.cli.bench.packages import require
from penstock.cli.bench.problems import BenchError

HEADER = "common.h"
PROTOS = ("nexusd.proto", "penstock.proto")
GRPC_PACKAGES = (
    "g++",
    "pkg-config",
    "protobuf-compiler",
    "protobuf-compiler-grpc",
    "libgrpc++-dev",
    "libprotobuf-dev",  # which the one before includes, and does not depend on
)
GRPC_FILES = ("/usr/include/grpcpp/grpcpp.h", "/usr/include/google/protobuf/message.h")
COMPILE_C = ("-O2",)
COMPILE_CPP = ("-std=c++20", "-O1")  # -O2 compiles half as long again, and makes nothing quicker
COMPILE_TIMEOUT_S = 300

Say = Callable[[str], None]


def build_program(say: Say, name: str = "load") -> Path:
    """The program whose source, in C or C++, has this name."""
    folder = _folder("penstock.cli.bench")
    source = folder / f"{name}.c"
    if source.exists():
        return _cached(name, [folder / HEADER, source], lambda made: _compile_c(say, source, made))
    source = folder / f"{name}.cc"
    protos = [_folder("penstock.wire.sidecar") / proto for proto in PROTOS]
    return _cached(
        name, [folder / HEADER, *protos, source], lambda made: _compile_cpp(say, source, protos, made)
    )


def _folder(package: str) -> Path:
    return Path(str(resources.files(package)))


def _cached(name: str, sources: list[Path], compile_to: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    program = cache / f"{name}-{digest[:16]}"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        compile_to(unfinished)
        unfinished.replace(program)
    return program


def _compile_c(say: Say, source: Path, made: Path) -> None:
    compiler = require("gcc", ("gcc", "libc6-dev"), say)
    _run(source.name, compiler, *COMPILE_C, "-o", str(made), str(source))


def _compile_cpp(say: Say, source: Path, protos: list[Path], made: Path) -> None:
    require("protoc", GRPC_PACKAGES, say)
    require("pkg-config", GRPC_PACKAGES, say)
    plugin = require("grpc_cpp_plugin", GRPC_PACKAGES, say)
    compiler = require("g++", GRPC_PACKAGES, say, GRPC_FILES)
    say(f"compiling {source.name}: half a minute, once")
    libraries = _run(source.name, "pkg-config", "--cflags", "--libs", "grpc++", "protobuf").split()
    with _generated(source.name, protos, plugin) as folder:
        _run(source.name, compiler, *COMPILE_CPP, f"-I{folder}", "-o", str(made), str(source), *libraries)


@contextmanager
def _generated(name: str, protos: list[Path], plugin: str) -> Iterator[str]:
    """A folder with what protoc makes of the files, for the runtime that is quicker to compile for."""
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
