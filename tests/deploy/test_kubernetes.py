"""The manifests: as the API wants them, closed, and about settings and paths that there are."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml

from penstock import __version__
from penstock.config import load
from penstock.testing import server
from tests.deploy.commands import check_words
from tests.deploy.files import DEPLOY, HOW_TO, read, read_yaml
from tests.support.servers import bare_environment

BASE = DEPLOY / "kubernetes" / "base"
WATCHED = DEPLOY / "kubernetes" / "watched"
RESTORE = DEPLOY / "kubernetes" / "restore"
VERSIONS = ("1.29", "1.32")
TELLS_LABELS = "app.kubernetes.io/"


def objects() -> Iterator[dict[str, Any]]:
    for name in read_yaml(BASE / "kustomization.yaml")["resources"]:
        yield from yaml.safe_load_all(read(BASE / name))


OBJECTS = list(objects())
PODS = [each["spec"]["template"]["spec"] for each in OBJECTS if "template" in each["spec"]]
CONTAINERS = [container for pod in PODS for container in pod["containers"]]
RESTORING: dict[str, Any] = read_yaml(RESTORE / "pod.yaml")


def name_of(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", [*OBJECTS, RESTORING], ids=name_of)
def test_a_manifest_is_as_the_api_wants_it(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)
    assert "namespace" not in manifest["metadata"]  # whoever applies it says where


def test_all_files_are_used() -> None:
    settings = read_yaml(BASE / "kustomization.yaml")
    [generator] = settings["configMapGenerator"]
    used = {*settings["resources"], *generator["files"], "kustomization.yaml"}
    assert {path.name for path in BASE.iterdir()} == used


@pytest.mark.parametrize("folder", [BASE, WATCHED, RESTORE], ids=lambda folder: folder.name)
def test_kustomize_puts_the_manifests_together(folder: Path) -> None:
    if shutil.which("kubectl") is None:  # Debian has none
        for name in read_yaml(folder / "kustomization.yaml")["resources"]:
            assert (folder / name).exists()
        return
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    made = [name_of(each) for each in yaml.safe_load_all(done.stdout)]
    assert len(made) == (1 if folder == RESTORE else len(OBJECTS) + 1 + (folder == WATCHED))
    assert f"image: penstock:{__version__}" in done.stdout


@pytest.mark.parametrize("folder", [BASE, RESTORE], ids=lambda folder: folder.name)
def test_images_have_the_version_of_the_package(folder: Path) -> None:
    images = read_yaml(folder / "kustomization.yaml")["images"]
    assert {image["newTag"] for image in images} == {__version__}
    used = {container["image"] for container in CONTAINERS}
    assert {image["name"] for image in images} <= used and "penstock" in used


@pytest.mark.parametrize("pod", [*PODS, RESTORING["spec"]], ids=lambda pod: pod["containers"][0]["name"])
def test_a_pod_runs_as_nobody_special(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"--uid {pod['securityContext']['runAsUser']} " in read(DEPLOY / "container" / "Containerfile")
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        limits = container["securityContext"]
        assert limits["readOnlyRootFilesystem"] is True
        assert limits["allowPrivilegeEscalation"] is False
        assert limits["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("pod", [*PODS, RESTORING["spec"]], ids=lambda pod: pod["containers"][0]["name"])
def test_whatever_a_pod_mounts_it_has(pod: dict[str, Any]) -> None:
    claims = [
        claim["metadata"]["name"]
        for each in OBJECTS
        for claim in each["spec"].get("volumeClaimTemplates", ())
    ]
    volumes = {volume["name"] for volume in pod["volumes"]} | set(claims)
    for container in pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container["name"])
def test_a_container_is_started_with_flags_that_there_are(container: dict[str, Any]) -> None:
    check_words(container["args"])


def test_the_settings_are_valid_and_their_files_are_mounted() -> None:
    settings = load(BASE / "penstock.yaml").settings
    [container] = [each for each in CONTAINERS if each["name"] == "penstock"]
    paths = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert str(settings.data_dir) in paths
    assert settings.access.password_file == "/etc/penstock/access/passwords"
    assert paths["/etc/penstock/access"] == "access"
    assert settings.access.acl_file == "/etc/penstock/settings/acl"
    assert paths["/etc/penstock/settings"] == "settings"
    assert container["args"][-1] == "/etc/penstock/settings/penstock.yaml"
    [pod] = [pod for pod in PODS if container in pod["containers"]]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > settings.shutdown_timeout_s + pause


def test_a_restore_has_the_volume_of_the_server_and_no_service_leads_to_it() -> None:
    [claim] = [volume for volume in RESTORING["spec"]["volumes"] if volume["name"] == "data"]
    [base] = [each for each in OBJECTS if each["kind"] == "StatefulSet"]
    [template] = base["spec"]["volumeClaimTemplates"]
    name = f"{template['metadata']['name']}-{base['metadata']['name']}-0"
    assert claim["persistentVolumeClaim"]["claimName"] == name
    assert RESTORING["spec"]["securityContext"] == base["spec"]["template"]["spec"]["securityContext"]
    labels = RESTORING["metadata"]["labels"].items()
    for service in (each for each in OBJECTS if each["kind"] == "Service"):
        assert not service["spec"]["selector"].items() <= labels


def test_every_service_finds_a_pod_and_its_ports() -> None:
    templates = [each["spec"]["template"] for each in OBJECTS if "template" in each["spec"]]
    for service in (each for each in OBJECTS if each["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        [found] = [each for each in templates if wanted <= each["metadata"]["labels"].items()]
        ports = {port["name"] for each in found["spec"]["containers"] for port in each["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_clients_and_the_dashboard_reach_the_server_by_its_service() -> None:
    settings = load(BASE / "penstock.yaml").settings
    [dashboard] = [each for each in CONTAINERS if each["name"] == "dashboard"]
    assert "--address=http://penstock:8080" in dashboard["args"]
    assert "penstock" in settings.websocket.hosts
    assert "Service penstock" in map(name_of, OBJECTS)


def test_the_probes_ask_what_a_server_answers_to_a_stranger(tmp_path: Path) -> None:
    [container] = [each for each in CONTAINERS if each["name"] == "penstock"]
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    (tmp_path / "acl").write_text(read(BASE / "acl"), encoding="utf-8")
    (tmp_path / "passwords").write_text("", encoding="utf-8")
    access = {"password_file": str(tmp_path / "passwords"), "acl_file": str(tmp_path / "acl")}
    with server(access=access) as running:
        for probe in probes:
            assert httpx.get(running.http_address + probe["path"]).status_code == 200
        assert httpx.get(f"{running.http_address}/metrics").status_code == 401


def test_the_monitor_selects_the_server_alone_and_reads_its_metrics() -> None:
    spec = read_yaml(WATCHED / "monitor.yaml")["spec"]
    services = [each for each in OBJECTS if each["kind"] == "Service"]
    wanted = spec["selector"]["matchLabels"].items()
    [found] = [each for each in services if wanted <= each["metadata"]["labels"].items()]
    assert found["metadata"]["labels"][spec["jobLabel"]] == "penstock"  # as the rules in deploy/ call it
    [endpoint] = spec["endpoints"]
    assert endpoint["port"] in {port["name"] for port in found["spec"]["ports"]}
    assert endpoint["path"] == "/metrics/prometheus"


def test_the_page_makes_a_secret_with_every_key_that_is_asked_for() -> None:
    page = read(HOW_TO / "run-on-kubernetes.md")
    made = set(re.findall(r"--from-(?:file|literal)=([\w-]+)", page))
    asked = {
        item["key"]
        for pod in PODS
        for each in pod["volumes"]
        for item in each.get("secret", {}).get("items", ())
    }
    login = read_yaml(WATCHED / "monitor.yaml")["spec"]["endpoints"][0]["basicAuth"]
    assert made == asked | {part["key"] for part in login.values()}


def test_the_passwords_that_the_page_makes_open_what_they_should(tmp_path: Path) -> None:
    page = read(HOW_TO / "run-on-kubernetes.md")
    [script] = re.findall(r"```sh\n(for user in .*?)```", page, re.DOTALL)
    folder = tmp_path / "bin"
    folder.mkdir()
    write_command(folder / "penstock", f'exec {sys.executable} -m penstock "$@"')
    write_command(folder / "kubectl", "exit 0")
    environment = {**bare_environment(), "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=environment, timeout=60, check=True)
    access = {"password_file": str(tmp_path / "passwords"), "acl_file": str(BASE / "acl")}
    with server(access=access) as running:
        for user in ("dashboard", "prometheus"):
            password = read(tmp_path / f"{user}.password")
            answer = httpx.get(f"{running.http_address}/metrics", auth=(user, password))
            assert (answer.status_code, password.strip()) == (200, password)


def write_command(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
