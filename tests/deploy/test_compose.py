"""The compose file: valid, pinned, closed to other machines, and about files and commands that there are."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock import __version__
from penstock.config import load
from tests.deploy.commands import check_words
from tests.deploy.files import DEPLOY, ROOT, read, read_yaml

FILE = DEPLOY / "compose" / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = read_yaml(FILE)["services"]
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+")


def test_compose_finds_no_mistake(tmp_path: Path) -> None:
    text = re.sub(r"^name: .*\n", "", read(FILE), flags=re.MULTILINE)  # newer than the one in Debian
    done = subprocess.run(
        ["docker-compose", "--project-directory", str(FILE.parent), "--file", "-", "config"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(SERVICES) == ["dashboard", "grafana", "penstock", "prometheus"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_watched_and_has_no_rights(name: str) -> None:
    service = SERVICES[name]
    assert PINNED.fullmatch(service["image"])
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", SERVICES)
def test_a_port_is_published_on_loopback_alone(name: str) -> None:
    for port in SERVICES[name]["ports"]:
        assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)


@pytest.mark.parametrize("name", SERVICES)
def test_whatever_is_mounted_is_there(name: str) -> None:
    volumes = read_yaml(FILE)["volumes"]
    for mount in SERVICES[name].get("volumes", ()):
        source, _, how = mount.partition(":")
        if source.startswith("."):
            assert (FILE.parent / source).exists(), mount
            assert how.endswith(":ro"), mount
        else:
            assert source in volumes, mount


@pytest.mark.parametrize(("name", "image"), [("penstock", "penstock"), ("dashboard", "penstock-dashboard")])
def test_an_image_is_built_from_the_container_file(name: str, image: str) -> None:
    service = SERVICES[name]
    build = service["build"]
    context = (FILE.parent / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()
    lock = build.get("args", {"LOCK": "server"})["LOCK"]
    assert (DEPLOY / "container" / f"{lock}.lock").is_file()
    assert service["image"] == f"{image}:{__version__}"


def test_the_command_is_ours_and_has_these_flags() -> None:
    check_words(SERVICES["dashboard"]["command"])


def test_health_is_checked_by_the_program_of_the_image() -> None:
    assert SERVICES["penstock"]["healthcheck"]["test"] == ["CMD", "healthcheck"]
    assert SERVICES["dashboard"]["healthcheck"]["test"][3:] == ["healthcheck", "/_stcore/health"]


def test_the_settings_are_valid_and_know_the_name_that_others_call_the_server_by() -> None:
    settings = load(DEPLOY / "compose" / "penstock.yaml").settings
    assert "penstock" in settings.websocket.hosts
    assert settings.host == settings.sidecar.host == "0.0.0.0"
    seconds = int(SERVICES["penstock"]["stop_grace_period"].removesuffix("s"))
    assert seconds > settings.shutdown_timeout_s


def test_grafana_is_given_prometheus_and_the_dashboard() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    [source] = read_yaml(provisioning / "datasources" / "prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = read_yaml(provisioning / "dashboards" / "penstock.yaml")["providers"]
    mounts = [mount.split(":") for mount in SERVICES["grafana"]["volumes"]]
    [folder] = [mount[0] for mount in mounts if mount[1] == provider["options"]["path"]]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (FILE.parent / folder / Path(home).name).is_file()


def test_prometheus_asks_the_server_by_its_name() -> None:
    [job] = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["penstock:8080"]}]
