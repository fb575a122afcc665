"""Build hook: compiles the hot path with mypyc, from the same sources that run interpreted.

The modules are listed in `pyproject.toml`. The checkout is not touched: C files and libraries are made in a
temporary directory. An editable install stays interpreted. Without a C compiler the wheel is pure Python, and
works the same. `PENSTOCK_BUILD=pure` asks for that; with `PENSTOCK_BUILD=compiled` it is an error instead.

As a script: with a directory and modules it compiles them, without it exits with the reason if it could not.
"""

import contextlib
import io
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # `make` asks what is missing, in an environment without tools that build
    BuildHookInterface = object  # type: ignore[assignment, misc]

MYPY_FLAGS = (
    "--config-file=",  # `make check` has its own; here only the modules of the list are checked
    "--explicit-package-bases",
    "--follow-imports=silent",
    "--ignore-missing-imports",
)
OPTIMIZATION = "2"
CHANGED_MEANING = "Treating generator comprehension as list"
"""Warning of mypyc for code that would not do what it does interpreted."""
RUNTIME_FILE = "misc_ops.c"
DEPRECATED_THROW = "PyObject_CallFunctionObjArgs(_m, type, value, traceback, NULL)"
"""Call in mypyc's runtime that CPython warns of since 3.12 (mypyc/mypyc#1214)."""
THROW = "PyObject_CallFunctionObjArgs(_m, value, NULL)"


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled modules to a wheel."""

    def dependencies(self) -> list[str]:
        """Packages that compile: none for a pure build, or where one is all that is possible."""
        wanted = _wanted()
        is_needed = wanted == "compiled" or (not wanted and not _missing())
        return list(self.config["requires"]) if is_needed else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless this is an editable install, or a pure wheel is asked for."""
        self._work: Path | None = None
        wanted = _wanted()
        if version == "editable" or wanted == "pure":
            return
        self._work = Path(tempfile.mkdtemp(prefix="penstock-"))
        problem = _missing() or self._compile(self._work)
        if problem and wanted == "compiled":
            raise RuntimeError(problem)
        if problem:
            self.app.display_warning(f"This build of Penstock is pure Python, and slower. {problem}")
            return
        built = self._work / "built"
        found = {path: path.relative_to(built) for path in sorted(built.rglob("*.so"))}
        build_data["force_include"].update({str(path): str(name) for path, name in found.items()})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel has copied."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)

    def _compile(self, work: Path) -> str:
        """Compile into `work`; return what went wrong, if anything did."""
        command = [sys.executable, str(Path(self.root, "hatch_build.py")), str(work), *self.config["modules"]]
        done = subprocess.run(
            command,
            cwd=Path(self.root, "src"),
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return f"The compiler failed ({done.returncode}):\n{done.stdout[-4000:]}" if done.returncode else ""


def _wanted() -> str:
    """Return `compiled`, `pure`, or nothing for the best that this machine can build."""
    wanted = os.environ.get("PENSTOCK_BUILD", "")
    if wanted not in ("", "compiled", "pure"):
        raise ValueError(f"PENSTOCK_BUILD is {wanted!r}; it may be 'compiled' or 'pure'")
    return wanted


def _missing() -> str:
    """Name what a compiled build needs and this machine does not have, if anything."""
    if platform.python_implementation() != "CPython" or sys.platform != "linux":
        return "Compiled builds are for CPython on Linux."
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"There is no C compiler ({compiler})."
    header = Path(sysconfig.get_path("include"), "Python.h")
    return "" if header.exists() else f"There is no {header} (on Debian: python3-dev)."


def compile_modules(work: Path, modules: list[str]) -> None:
    """Compile modules of the current directory into libraries under `work`/built.

    Code that would behave differently from its interpreted twin is refused: mypyc only warns of it.
    """
    from mypyc.build import mypycify  # noqa: PLC0415 - only where something is compiled
    from setuptools import Distribution  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    flags = [*MYPY_FLAGS, f"--cache-dir={work / 'cache'}"]
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            extensions = mypycify(
                [*flags, *modules],
                opt_level=OPTIMIZATION,
                multi_file=True,  # compiled in parallel, and in far less time than one large file
                target_dir=str(work / "generated"),
                group_name="penstock",
            )
    finally:
        print(output.getvalue(), end="")
    mend_runtime(work / "generated")
    if refused := [line for line in output.getvalue().splitlines() if CHANGED_MEANING in line]:
        sys.exit("\n".join(["Write a list or a generator function instead:", *refused]))

    class ParallelBuild(build_ext):
        """Compiles the files of an extension side by side; setuptools does one after the other."""

        def build_extensions(self) -> None:
            compile_all = self.compiler.compile

            def compile_in_parallel(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
                    built = threads.map(lambda source: compile_all([source], **options), sources)
                    return [path for paths in built for path in paths]

            self.compiler.compile = compile_in_parallel
            super().build_extensions()

    command = ParallelBuild(Distribution({"name": "penstock", "ext_modules": extensions}))
    command.build_lib = str(work / "built")
    command.build_temp = str(work / "objects")
    command.ensure_finalized()
    command.run()


def mend_runtime(generated: Path) -> None:
    """Let a cancelled coroutine pass the exception on alone: with warnings as errors it would be lost."""
    for file in generated.rglob(RUNTIME_FILE):
        file.write_text(file.read_text(encoding="utf-8").replace(DEPRECATED_THROW, THROW), encoding="utf-8")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(_missing() or 0)
    compile_modules(Path(sys.argv[1]), sys.argv[2:])
