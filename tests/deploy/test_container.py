"""The container file: what it installs works, as the user it names, with the settings it brings.

There is no engine to build it with here. So its build steps are run as they are written, in a folder that has
nothing but what it copies. Packages come from the environment of the tests, because that needs no network.
The hot path stays pure Python, because compiling it takes minutes.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from penstock.config import load
from tests.deploy.files import DEPLOY, ROOT, read
from tests.support.servers import RunningServer, bare_environment

FILE = DEPLOY / "container" / "Containerfile"
HOME = "/opt/penstock"


class Step(NamedTuple):
    """One instruction."""

    word: str
    rest: str


def stages() -> list[list[Step]]:
    """The instructions of each stage."""
    text = re.sub(r"^#.*\n", "", read(FILE), flags=re.MULTILINE).replace("\\\n", " ")
    steps = [Step(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]
    found: list[list[Step]] = []
    for step in steps:
        if step.word == "FROM":
            found.append([])
        if found:  # what stands before is an argument of all stages
            found[-1].append(step)
    return found


BUILD, FINAL = stages()


def rest_of(stage: list[Step], word: str) -> list[str]:
    return [step.rest for step in stage if step.word == word]


def words_in(text: str) -> list[str]:
    """An instruction in its exec form."""
    return re.findall(r'"([^"]*)"', text)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the build stage has put the program."""
    folder = tmp_path_factory.mktemp("image")
    source, home = folder / "source", folder / "penstock"
    source.mkdir()
    for copied in rest_of(BUILD, "COPY"):
        *names, target = copied.split()
        for name in names:
            copy(ROOT / name, source / target / (Path(name).name if target == "./" else ""))
    [lock] = [rest.partition("LOCK=")[2] for rest in rest_of(BUILD, "ARG")]
    bystanders = other_packages(folder)
    packages, *steps = rest_of(BUILD, "RUN")
    assert packages.startswith("apt-get update ")
    for line in steps:
        run_step(line.replace(HOME, str(home)).replace("${LOCK}", lock), source)
        for site in home.glob("lib/python*/site-packages"):
            (site / "others.pth").write_text(f"{bystanders}\n", encoding="utf-8")
    return home


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def other_packages(folder: Path) -> Path:
    """Everything in the environment of the tests but Penstock."""
    others = folder / "others"
    others.mkdir()
    for path in (Path(sys.prefix) / "lib").glob("python*/site-packages/*"):
        if "penstock" not in path.name and path.suffix != ".pth":
            (others / path.name).symlink_to(path)
    return others


def run_step(line: str, folder: Path) -> None:
    """Run a line as the builder would, without a network."""
    words = shlex.split(line)
    assert words[0] == "python"
    environment = {**bare_environment(), "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PENSTOCK_BUILD": "pure"}
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_the_program_that_is_installed_serves_and_is_found_healthy(installed: Path, tmp_path: Path) -> None:
    [entry], [command] = rest_of(FINAL, "ENTRYPOINT"), rest_of(FINAL, "CMD")
    assert words_in(entry) == ["penstock"]
    program = str(installed / "bin" / "penstock")
    settings = {
        "mqtt": {"port": 0},
        "http": {"port": 0},
        "sidecar": {"port": 0},
        "data_dir": str(tmp_path / "data"),
    }
    (tmp_path / "penstock.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    environment = {**bare_environment(), "PYTHONPATH": ""}
    told = {**environment, "PENSTOCK_CONFIG": str(tmp_path / "penstock.yaml")}
    with (tmp_path / "stdout").open("wb") as stdout, (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen([program, *words_in(command)], env=told, stdout=stdout, stderr=stderr)
    server = RunningServer(process, tmp_path)
    try:
        told = {**environment, "PENSTOCK_HTTP__PORT": str(server.port_of("http"))}
        done = check_health(told)
        assert done.returncode == 0, done.stderr
        assert check_health(told, "/nowhere").stderr == "status 404\n"
    finally:
        server.stop()
    assert check_health(told).returncode == 1
    assert not list(installed.glob("bin/pip*")), "the image has no use for it"


def check_health(environment: dict[str, str], *path: str) -> "subprocess.CompletedProcess[str]":
    """Run the health check of the image."""
    [check] = rest_of(FINAL, "HEALTHCHECK")
    [name] = words_in(check.partition(" CMD ")[2])
    assert any(
        rest.endswith(f"deploy/container/{name} /usr/local/bin/{name}") for rest in rest_of(FINAL, "COPY")
    )
    words = [str(DEPLOY / "container" / name), *path]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_copy_that_is_installed_is_the_one_that_was_copied(installed: Path) -> None:
    words = [str(installed / "bin" / "python"), "-c", "import penstock; print(penstock.__file__)"]
    environment = {**bare_environment(), "PYTHONPATH": ""}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(str(installed))


def test_the_final_image_has_the_program_and_a_user_and_no_more() -> None:
    assert [rest.split(" AS ")[0] for stage in (BUILD, FINAL) for rest in rest_of(stage, "FROM")] == [
        "${BASE}",
        "${BASE}",
    ]
    assert re.search(r"^ARG BASE=python:3\.\d+\.\d+-slim-bookworm$", read(FILE), re.MULTILINE)
    assert rest_of(FINAL, "COPY")[0] == f"--from=build {HOME} {HOME}"
    assert not any("pip" in line or "apt" in line for line in rest_of(FINAL, "RUN"))
    [user] = rest_of(FINAL, "USER")
    number = user.partition(":")[0]
    assert number.isdecimal() and int(number) > 0
    [made] = rest_of(FINAL, "RUN")
    [volume] = rest_of(FINAL, "VOLUME")
    assert f"--uid {number} " in made and f" {volume}" in made
    assert rest_of(FINAL, "STOPSIGNAL") == ["SIGTERM"]


def test_the_settings_in_the_image_fit_it() -> None:
    settings = load(DEPLOY / "container" / "penstock.yaml").settings
    assert rest_of(FINAL, "VOLUME") == [str(settings.data_dir)]
    [ports] = rest_of(FINAL, "EXPOSE")
    opened = {settings.mqtt.port, *settings.http.port, settings.sidecar.port}
    assert opened <= set(map(int, ports.split()))
    assert "deploy/container/penstock.yaml /etc/penstock/penstock.yaml" in rest_of(FINAL, "COPY")
    assert any("PENSTOCK_CONFIG=/etc/penstock/penstock.yaml" in rest for rest in rest_of(FINAL, "ENV"))


def test_an_image_that_was_told_nothing_refuses_to_be_open_to_everyone() -> None:
    words = [sys.executable, "-m", "penstock", "serve", "--data-dir", "off"]
    environment = {**bare_environment(), "PENSTOCK_CONFIG": str(DEPLOY / "container" / "penstock.yaml")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "access.password_file" in done.stderr and "Traceback" not in done.stderr


def test_everything_that_is_copied_is_sent_to_the_builder() -> None:
    ignored = read(FILE.with_name("Containerfile.dockerignore")).splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert set(copied_names()) == kept
    assert all((ROOT / name).exists() for name in kept)


def copied_names() -> Iterator[str]:
    for stage in (BUILD, FINAL):
        for copied in rest_of(stage, "COPY"):
            if not copied.startswith("--from"):
                yield from (word for word in copied.split()[:-1] if not word.startswith("--"))
