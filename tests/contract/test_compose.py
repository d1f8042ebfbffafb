"""docker-compose.yml, its Dockerfiles and .env.example agree with each other and with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from lorikeet_testing.compose import COMPOSE, MissingVariableError, load_compose, variables_in, workers

from control_plane.core.config import Settings
from control_plane.core.jobs.queues import QUEUES
from lora_engine.healthcheck import FLAG
from lorikeet_version import release

ROOT = COMPOSE.parent
SECRETS = {"POSTGRES_PASSWORD": "p", "LORIKEET_SECRET_KEY": "s"}
WORKERS = tuple(workers())
PLATFORM = ("migrate", "web", *WORKERS, "beat", "watcher")
ENGINES = ("engine-cpu", "engine-gpu")
MONITORING = {"prometheus": "127.0.0.1:9090:9090", "grafana": "127.0.0.1:3000:3000"}
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return load_compose(SECRETS)


def env_example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_house_is_complete(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"postgres", "redis", *PLATFORM, *ENGINES, *MONITORING}
    assert all(compose["services"][name]["profiles"] == ["monitoring"] for name in MONITORING)
    assert compose["services"]["engine-cpu"]["profiles"] == ["cpu"]
    assert compose["services"]["engine-gpu"]["profiles"] == ["gpu"]


def test_secrets_have_no_default() -> None:
    for name in SECRETS:
        with pytest.raises(MissingVariableError):
            load_compose({key: value for key, value in SECRETS.items() if key != name})


def test_every_variable_is_in_the_example_and_no_other() -> None:
    assert variables_in(COMPOSE.read_text()) == set(env_example())


# Paths within the image and its volumes, and what a topology of several processes cannot have.
NOT_PASSED = {"CONSOLE_DIR", "DEMO_DIR", "ARTIFACT_DIR", "EMBEDDED", "DEBUG"}


def test_every_setting_is_passed_and_is_one_the_code_reads(compose: dict[str, Any]) -> None:
    known = {f"LORIKEET_{name.upper()}" for name in Settings.model_fields if name.upper() not in NOT_PASSED}
    known |= {"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"}  # read by the S3 client
    for name in PLATFORM:
        assert set(compose["services"][name]["environment"]) == known


def test_the_small_variant_leaves_out_what_web_does_itself(compose: dict[str, Any]) -> None:
    small = yaml.safe_load((ROOT / "docker-compose.small.yml").read_text())["services"]
    assert small.pop("web")["environment"] == {"LORIKEET_EMBEDDED": "true"}
    assert small == {name: {"profiles": ["separate"]} for name in (*WORKERS, "beat", "watcher")}
    needed = {other for service in compose["services"].values() for other in service.get("depends_on", {})}
    assert not needed & set(small), "nothing waits for them"


def test_logs_rotate_and_memory_is_limited_everywhere(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "5"}}, name
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
    redis = compose["services"]["redis"]
    assert redis["command"][redis["command"].index("--maxmemory") + 1] == "512mb" and redis["mem_limit"] == "1g"


def test_whatever_runs_on_has_a_health_check_of_its_own_work(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"migrate"}
    port = services["web"]["environment"]["LORIKEET_METRICS_PORT"]
    for name in (*WORKERS, "beat", "watcher"):
        assert f"http://127.0.0.1:{port}/livez" in services[name]["healthcheck"]["test"][-1]
    for name in ENGINES:
        test, command = services[name]["healthcheck"]["test"], services[name]["command"]
        assert test[1:] == ["python", "-m", "lora_engine", FLAG, command[command.index("--metrics-port") + 1]]


def test_images_of_others_are_pinned_to_an_exact_version(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if "build" not in service:
            assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+(\.\d+)?[\w.-]*(@sha256:[0-9a-f]{64})?", service["image"]), name


def test_our_images_have_the_version_of_the_release(compose: dict[str, Any]) -> None:
    for name in (*PLATFORM, *ENGINES):
        service = compose["services"][name]
        assert service["image"].partition(":")[2].removesuffix("-cpu").removesuffix("-cuda") == release()
        assert service["build"]["args"]["VERSION"] == release()


def test_platform_processes_differ_only_in_their_command(compose: dict[str, Any]) -> None:
    services = [compose["services"][name] for name in PLATFORM]
    assert len({service["image"] for service in services}) == 1
    assert all(service["environment"] == services[0]["environment"] for service in services)


def test_volumes_are_declared_and_sockets_shared(compose: dict[str, Any]) -> None:
    named = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
        if not volume.startswith((".", "/"))
    }
    assert named == set(compose["volumes"])
    for name in (*PLATFORM, *ENGINES):
        assert "engine-socket:/run/lorikeet" in compose["services"][name]["volumes"]


def test_the_engine_may_only_read_the_artifacts(compose: dict[str, Any]) -> None:
    for name in ENGINES:
        assert "data:/var/lib/lorikeet:ro" in compose["services"][name]["volumes"]


def test_only_the_web_process_is_published_and_only_locally(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    monitoring = {name: [port] for name, port in MONITORING.items()}
    assert published == {"web": ["127.0.0.1:8000:8000"], **monitoring}


def test_services_wait_for_health_not_for_start(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for other, condition in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other == "migrate" else "service_healthy"
            assert condition == {"condition": wanted}, name
            assert other == "migrate" or "healthcheck" in compose["services"][other]
    for name in ("web", *WORKERS, *ENGINES):
        assert compose["services"][name]["healthcheck"]["test"]


def test_every_queue_has_a_worker(compose: dict[str, Any]) -> None:
    consumed: list[str] = []
    for name in WORKERS:
        command = compose["services"][name]["command"]
        consumed += command[command.index("--queues") + 1].split(",")
    assert sorted(consumed) == sorted(queue.name for queue in QUEUES)


def test_requests_go_before_background_work(compose: dict[str, Any]) -> None:
    """Among containers priorities of processes count for nothing."""
    shares = {name: service.get("cpu_shares", 1024) for name, service in compose["services"].items()}
    assert {name for name, share in shares.items() if share < 1024} == set(WORKERS)
    assert {name for name, share in shares.items() if share > 1024} == {"web"}


def test_our_containers_have_no_rights(compose: dict[str, Any]) -> None:
    for name in (*PLATFORM, *ENGINES):
        service = compose["services"][name]
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_images_copy_what_exists_and_do_not_run_as_root(path: Path) -> None:
    text = path.read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), f"{path.name}: {source}"
    last_stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    final = [stage for stage in last_stages if "\nCMD " in stage]
    assert final
    assert all("\nUSER lorikeet\n" in stage for stage in final)


def test_builds_name_existing_files_and_targets(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        if "build" not in service:
            continue
        text = (ROOT / service["build"]["dockerfile"]).read_text()
        target = service["build"].get("target")
        assert target is None or f" AS {target}\n" in text
