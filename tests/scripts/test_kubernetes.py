"""deploy/kubernetes: valid for two versions of Kubernetes, complete, and with the commands that are tested by hand."""

from __future__ import annotations

import copy
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import ValidationError, validate
from lorikeet_testing.compose import load_compose, workers

from control_plane.config import REPOSITORY, Settings, parse_engine_hosts
from lora_engine.server import arguments

VERSIONS = ("1.33", "1.37")
FOLDER = REPOSITORY / "deploy" / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS: list[dict[str, Any]] = [
    found for name in KUSTOMIZATION["resources"] for found in yaml.safe_load_all((FOLDER / name).read_text())
]
PLATFORM = ("migrate", "web", *workers(), "beat", "watcher")
SECRETS = {"LORIKEET_DATABASE_URL", "LORIKEET_REDIS_URL", "LORIKEET_SECRET_KEY", "LORIKEET_KEY_PEPPER"}
SECRETS |= {"LORIKEET_ENGINE_TOKEN"}


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def workload(name: str) -> dict[str, Any]:
    (found,) = [each for each in OBJECTS if each["metadata"]["name"] == name and "template" in each.get("spec", {})]
    return found


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = workload(name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    return dict(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(version: str) -> None:
    for each in OBJECTS:
        validate(each, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_misspelt_would_be_found(version: str) -> None:
    wrong = copy.deepcopy(workload("web"))
    wrong["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    with pytest.raises(ValidationError):
        validate(wrong, version, strict=True)


def test_every_file_is_a_resource() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} == {*KUSTOMIZATION["resources"], "kustomization.yaml"}


@pytest.mark.parametrize("name", PLATFORM)
def test_commands_are_those_of_compose(name: str) -> None:
    """tests/e2e/test_topology.py starts these."""
    services = load_compose({"POSTGRES_PASSWORD": "p", "LORIKEET_SECRET_KEY": "s"})["services"]
    assert container(name)["command"] == services[name]["command"]


def test_the_engine_takes_its_command() -> None:
    command = container("engine")["command"]
    assert command[:3] == ["python", "-m", "lora_engine"]
    config = arguments.parse([word.replace("$(MODEL_NAME)", "m") for word in command[3:]])
    assert (config.listen, config.tls_certificate, config.metrics_port) == (
        "0.0.0.0:7000",
        Path("/etc/lorikeet/engine-tls/tls.crt"),
        9400,
    )
    ports = {port["name"]: port["containerPort"] for port in container("engine")["ports"]}
    assert ports == {"grpc": 7000, "metrics": 9400}
    assert pod("engine")["terminationGracePeriodSeconds"] > config.drain_seconds
    assert arguments.TOKEN_VARIABLE in {variable["name"] for variable in container("engine")["env"]}


def test_settings_are_ones_the_code_reads_and_secrets_are_no_settings() -> None:
    settings = named("ConfigMap", "lorikeet-settings")["data"]
    known = {f"LORIKEET_{name.upper()}" for name in Settings.model_fields}
    assert set(settings) <= known and known >= SECRETS and not SECRETS & set(settings)
    guide = (REPOSITORY / "docs" / "how-to" / "kubernetes.md").read_text()
    assert all(name in guide for name in SECRETS)


def test_there_is_a_host_for_every_engine_that_can_be_started() -> None:
    hosts = parse_engine_hosts(named("ConfigMap", "lorikeet-settings")["data"]["LORIKEET_ENGINE_HOSTS"])
    engine, most = workload("engine"), named("HorizontalPodAutoscaler", "engine")["spec"]["maxReplicas"]
    service = engine["spec"]["serviceName"]
    domain = f"{service}.{KUSTOMIZATION['namespace']}.svc.cluster.local:7000"
    assert hosts == {f"engine-{n}": f"engine-{n}.{domain}" for n in range(most)}
    assert named("Service", service)["spec"]["clusterIP"] == "None"


def test_a_web_process_has_time_to_drain() -> None:
    drain_s = int(named("ConfigMap", "lorikeet-settings")["data"]["LORIKEET_DRAIN_S"])
    sleep = shlex.join(container("web")["lifecycle"]["preStop"]["exec"]["command"])
    assert pod("web")["terminationGracePeriodSeconds"] >= drain_s + int(sleep.split()[1]) + 20


def selected(selector: dict[str, str]) -> set[str]:
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in OBJECTS
        if "template" in each.get("spec", {})
    }
    return {name for name, own in labels.items() if selector.items() <= own.items()}


def test_selectors_select_what_they_mean() -> None:
    assert selected(named("Service", "web")["spec"]["selector"]) == {"web"}
    assert selected(named("Service", "engines")["spec"]["selector"]) == {"engine"}
    for name in ("web", "watcher", "engine"):
        assert selected(named("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"]) == {name}
    for name in (*PLATFORM[1:], "engine"):
        assert selected(workload(name)["spec"]["selector"]["matchLabels"]) == {name}
    (peer,) = named("NetworkPolicy", "engines-from-platform")["spec"]["ingress"][0]["from"]
    assert selected(peer["podSelector"]["matchLabels"]) == set(PLATFORM)
    for name, meant in (("web-from-proxy", "web"), ("engines-from-platform", "engine")):
        assert selected(named("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]) == {meant}


@pytest.mark.parametrize("name", [*PLATFORM, "engine"])
def test_pods_keep_to_the_restricted_standard(name: str) -> None:
    spec, own = pod(name)["securityContext"], container(name)["securityContext"]
    assert spec["runAsNonRoot"] and spec["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not own["allowPrivilegeEscalation"] and own["readOnlyRootFilesystem"]
    assert own["capabilities"] == {"drop": ["ALL"]} and not pod(name)["automountServiceAccountToken"]
    mounted = {mount["name"] for mount in container(name)["volumeMounts"]}
    declared = {volume["name"] for volume in pod(name)["volumes"]}
    assert mounted == declared | ({"own"} if name == "engine" else set())


def test_the_autoscaler_asks_for_metrics_that_engines_have() -> None:
    text = (REPOSITORY / "inference_engine/lora_engine/server/metrics.py").read_text()
    for metric in named("HorizontalPodAutoscaler", "engine")["spec"]["metrics"]:
        name = metric["pods"]["metric"]["name"]
        assert f'_gauge("{name.removeprefix("lora_engine_")}"' in text
