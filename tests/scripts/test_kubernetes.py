"""deploy/kubernetes: valid for two versions of Kubernetes, complete, and with the commands that are tested by hand."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from kubernetes_validate import ValidationError, validate
from lorikeet_testing.compose import load_compose, workers

from control_plane.core.config import REPOSITORY, Settings, parse_engine_hosts
from control_plane.core.metrics.registry import web_text
from control_plane.fleet.base_models.actions import set_base_model
from control_plane.identity.access.actor import SYSTEM
from lora_engine.server import arguments
from lora_engine.server.metrics import HostMetrics
from lora_engine.wire import engine_pb2 as pb
from lorikeet_version import release

VERSIONS = ("1.33", "1.37")
FOLDER = REPOSITORY / "deploy" / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS: list[dict[str, Any]] = [
    found for name in KUSTOMIZATION["resources"] for found in yaml.safe_load_all((FOLDER / name).read_text())
]
PLATFORM = ("migrate", "web", *workers(), "beat", "watcher")
SECRETS = {"LORIKEET_DATABASE_URL", "LORIKEET_REDIS_URL", "LORIKEET_SECRET_KEY", "LORIKEET_KEY_PEPPER"}
SECRETS |= {"LORIKEET_SEALING_KEY", "LORIKEET_AUTHORITY_KEY", "LORIKEET_WEBHOOK_KEY"}
SECRETS |= {"LORIKEET_ENGINE_TOKEN", "LORIKEET_METRICS_TOKEN"}


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
    words = [word.replace("$(MODEL_NAME)", "m").replace("$(ZONE)", "") for word in command[3:]]
    config = arguments.parse(words)
    assert (config.listen, config.tls_certificate, config.metrics_port) == (
        "0.0.0.0:7000",
        Path("/etc/lorikeet/engine-tls/tls.crt"),
        9400,
    )
    ports = {port["name"]: port["containerPort"] for port in container("engine")["ports"]}
    assert ports == {"grpc": 7000, "metrics": 9400}
    assert pod("engine")["terminationGracePeriodSeconds"] > config.drain_seconds
    given = {variable["name"] for variable in container("engine")["env"]}
    assert given >= {arguments.TOKEN_VARIABLE, *re.findall(r"\$\((\w+)\)", " ".join(command))}


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
    notice_s = next(int(e["value"]) for e in container("web")["env"] if e["name"] == "LORIKEET_DRAIN_NOTICE_S")
    command = container("web")["command"]
    graceful_s = int(command[command.index("--graceful-s") + 1])
    assert pod("web")["terminationGracePeriodSeconds"] >= max(drain_s, notice_s) + graceful_s + 20
    assert notice_s > 0


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
    for name in ("web", *workers(), "watcher", "engine"):  # beat runs once: a budget could only block a drain
        assert selected(named("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"]) == {name}
    for name in (*PLATFORM[1:], "engine"):
        assert selected(workload(name)["spec"]["selector"]["matchLabels"]) == {name}
    (peer,) = named("NetworkPolicy", "engines-from-platform")["spec"]["ingress"][0]["from"]
    assert selected(peer["podSelector"]["matchLabels"]) == set(PLATFORM)
    policies = (("web-from-proxy", "web"), ("web-from-monitoring", "web"), ("engines-from-platform", "engine"))
    for name, meant in policies:
        assert selected(named("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]) == {meant}


@pytest.mark.parametrize("name", [*PLATFORM[1:], "engine"])
def test_a_process_that_hangs_is_started_anew(name: str) -> None:
    probe = container(name)["livenessProbe"]["httpGet"]
    assert probe["path"] == "/livez" and probe["port"] == ("http" if name == "web" else "metrics")


def test_images_have_the_version_of_the_release() -> None:
    tags = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}
    assert tags == {"lorikeet/web": release(), "lorikeet/engine": f"{release()}-cuda"}
    for name in (*PLATFORM, "engine"):
        image, _, tag = container(name)["image"].partition(":")
        assert tags[image] == tag


@pytest.mark.parametrize("name", [*PLATFORM, "engine"])
def test_pods_keep_to_the_restricted_standard(name: str) -> None:
    spec, own = pod(name)["securityContext"], container(name)["securityContext"]
    assert spec["runAsNonRoot"] and spec["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not own["allowPrivilegeEscalation"] and own["readOnlyRootFilesystem"]
    assert own["capabilities"] == {"drop": ["ALL"]} and not pod(name)["automountServiceAccountToken"]
    mounted = {mount["name"] for mount in container(name)["volumeMounts"]}
    declared = {volume["name"] for volume in pod(name)["volumes"]}
    assert mounted == declared | ({"own"} if name == "engine" else set())


def engine_page() -> str:
    """What an engine shows at /metrics while it runs."""
    metrics = HostMetrics()
    metrics.status.first_token.seconds = 0.5
    return metrics.text()


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"(?:lora_engine|lorikeet)_\w+", query))


def test_the_autoscaler_asks_for_metrics_that_engines_have() -> None:
    page = engine_page()
    for metric in named("HorizontalPodAutoscaler", "engine")["spec"]["metrics"]:
        assert f"\n{metric['pods']['metric']['name']} " in page


# -- with KEDA ----------------------------------------------------------------

KEDA = FOLDER / "keda"
TRIGGER = {
    "type": "object",
    "required": ["type", "metadata"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "prometheus"},
        "name": {"type": "string"},
        "metricType": {"enum": ["AverageValue"]},  # of others KEDA cannot fall back
        "metadata": {
            "type": "object",
            "required": ["serverAddress", "query", "threshold", "activationThreshold"],
            "additionalProperties": {"type": "string"},
        },
    },
}
COUNTS = ("pollingInterval", "cooldownPeriod", "minReplicaCount", "maxReplicaCount")
SCALED_OBJECT = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "spec": {
            "type": "object",
            "required": ["scaleTargetRef", "triggers"],
            "additionalProperties": False,
            "properties": {
                "scaleTargetRef": {"type": "object", "required": ["name"]},
                "triggers": {"type": "array", "minItems": 1, "items": TRIGGER},
                "fallback": {"type": "object", "required": ["failureThreshold", "replicas"]},
                "advanced": {"type": "object"},
                **{name: {"type": "integer", "minimum": 1} for name in COUNTS},
                "idleReplicaCount": {"const": 0},
            },
        },
    },
}
"""The part of KEDA's schema that is used here: its own is in none of the registries that tests install from."""


def scaled_object() -> dict[str, Any]:
    (found,) = yaml.safe_load_all((KEDA / "engines.yaml").read_text())
    return dict(found)


def test_keda_scales_what_the_autoscaler_scaled() -> None:
    component, scaled = yaml.safe_load((KEDA / "kustomization.yaml").read_text()), scaled_object()
    assert component["kind"] == "Component" and component["resources"] == ["engines.yaml"]
    (patch,) = component["patches"]
    removed = yaml.safe_load(patch["patch"])
    autoscaler = named("HorizontalPodAutoscaler", "engine")["spec"]
    assert (removed["kind"], removed["metadata"]["name"], removed["$patch"]) == (
        "HorizontalPodAutoscaler",
        "engine",
        "delete",
    )
    jsonschema.validate(scaled, SCALED_OBJECT)
    assert scaled["spec"]["scaleTargetRef"] == autoscaler["scaleTargetRef"]
    assert scaled["spec"]["maxReplicaCount"] == autoscaler["maxReplicas"]
    behaviour = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour == autoscaler["behavior"]
    for version in VERSIONS:  # it becomes one
        own = copy.deepcopy(named("HorizontalPodAutoscaler", "engine"))
        own["spec"]["behavior"] = behaviour
        validate(own, version, strict=True)


@pytest.mark.django_db
def test_keda_asks_for_metrics_that_there_are() -> None:
    set_base_model(actor=SYSTEM, description=pb.EngineDescription(base_model="m", base_digest="sha256:1"))
    pages = engine_page() + web_text().decode()
    triggers = {trigger["name"]: trigger["metadata"] for trigger in scaled_object()["spec"]["triggers"]}
    for trigger in triggers.values():
        for name in metrics_in(trigger["query"]):
            assert re.search(rf"^{name}[{{ ]", pages, re.MULTILINE), name
    assert 'lorikeet_base_model_wanted{base_model="m"} 1.0' in pages
    model = named("ConfigMap", "lorikeet-engine")["data"]["MODEL_NAME"]
    assert f'base_model="{model}"' in triggers["wanted"]["query"]
    assert float(triggers["wanted"]["activationThreshold"]) == 0


def test_prometheus_reaches_what_it_scrapes() -> None:
    for name, port in (("web-from-monitoring", "http"), ("engines-from-platform", "metrics")):
        rules = named("NetworkPolicy", name)["spec"]["ingress"]
        assert {"port": port} in [each for rule in rules for each in rule["ports"]]
    (rule,) = named("NetworkPolicy", "platform-from-monitoring")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "metrics"}]
    number = int(named("ConfigMap", "lorikeet-settings")["data"]["LORIKEET_METRICS_PORT"])
    for name in (*workers(), "beat", "watcher"):
        assert container(name)["ports"] == [{"name": "metrics", "containerPort": number}], name
    env = {variable["name"]: variable for variable in container("web")["env"]}
    assert env["LORIKEET_ALLOWED_HOSTS"]["value"] == "$(NAMES),$(POD_IP)"
    assert [*env].index("LORIKEET_ALLOWED_HOSTS") > [*env].index("POD_IP"), "expanded from those before it"


# -- with the Prometheus Operator -----------------------------------------------------------------

MONITORING = FOLDER / "monitoring"
DURATION = {"type": "string", "pattern": "^[0-9]+[smh]$"}
ENDPOINT = {
    "type": "object",
    "required": ["port", "authorization"],
    "additionalProperties": False,
    "properties": {
        "port": {"type": "string"},
        "path": {"const": "/metrics"},
        "interval": DURATION,
        "authorization": {
            "type": "object",
            "required": ["credentials"],
            "additionalProperties": False,
            "properties": {
                "credentials": {
                    "type": "object",
                    "required": ["name", "key"],
                    "additionalProperties": False,
                    "properties": {"name": {"type": "string"}, "key": {"const": "LORIKEET_METRICS_TOKEN"}},
                }
            },
        },
        "metricRelabelings": {"type": "array", "items": {"type": "object", "required": ["sourceLabels", "action"]}},
    },
}
POD_MONITOR = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "monitoring.coreos.com/v1"},
        "kind": {"const": "PodMonitor"},
        "spec": {
            "type": "object",
            "required": ["selector", "podMetricsEndpoints"],
            "additionalProperties": False,
            "properties": {
                "selector": {"type": "object"},
                "podMetricsEndpoints": {"type": "array", "minItems": 1, "items": ENDPOINT},
            },
        },
    },
}
"""The part of the operator's schema that is used here: its own is in none of the registries that tests install from."""


def monitored(selector: dict[str, Any]) -> set[str]:
    chosen = selected(selector["matchLabels"])
    for each in selector.get("matchExpressions", ()):
        assert (each["key"], each["operator"]) == ("app.kubernetes.io/component", "NotIn")
        chosen -= set(each["values"])
    return chosen


def test_each_pod_is_scraped_once_with_the_token() -> None:
    component = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    assert component["kind"] == "Component"
    assert {path.name for path in MONITORING.glob("*.yaml")} == {*component["resources"], "kustomization.yaml"}
    scraped: list[str] = []
    for each in yaml.safe_load_all((MONITORING / "podmonitors.yaml").read_text()):
        jsonschema.validate(each, POD_MONITOR)
        names = monitored(each["spec"]["selector"])
        for name in names:
            ports = {port["name"] for port in container(name)["ports"]}
            assert {endpoint["port"] for endpoint in each["spec"]["podMetricsEndpoints"]} <= ports, name
        scraped += names
    assert sorted(scraped) == sorted({*PLATFORM, "engine"} - {"migrate"})
