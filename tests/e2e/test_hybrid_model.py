"""A hybrid base model behind the platform: an adapter is uploaded through the API, answers as PEFT does, and one that
does not fit is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import torch
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.web import WebProcess, eventually
from tokenizers import Tokenizer

if TYPE_CHECKING:  # they load peft, which would take seconds in each worker
    from lorikeet_testing.reference_families import Family

pytestmark = pytest.mark.e2e
ADAPTER = "all-linear-r16-rslora"


class Service:
    def __init__(self, folder: Path, family: Family) -> None:
        options = ("--model-name", "hybrid", "--pool-mb", "32", "--dtype", "float32")
        self.engine = EngineProcess(family.folder, folder, *options)
        self.web = WebProcess(folder / "var", f"local={self.engine.address}")
        self.web.seed(adapters=False)
        self.web.start()
        self.web.wait_until_ready("hybrid")

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self.web.tenants["acme"].bearer
        return httpx.request(method, self.web.url + path, headers=headers, trust_env=False, timeout=60, **options)

    def upload(self, name: str, folder: Path) -> dict[str, Any]:
        """Upload an adapter's files and return the decision."""
        names = ("adapter_config.json", "adapter_model.safetensors")
        files = [("files", (each, (folder / each).read_bytes())) for each in names]
        sent = self.ask("POST", "/api/tenants/acme/uploads", data={"name": name}, files=files)
        assert sent.status_code == 202, sent.text
        path = f"/api/tenants/acme/uploads/{sent.json()['id']}"
        decided: dict[str, Any] = eventually(
            lambda: (upload := self.ask("GET", path).json())["state"] in ("accepted", "refused") and upload,
            30,
            what="a decision",
        )
        return decided

    def close(self) -> None:
        self.web.stop()
        self.engine.end()


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    from lorikeet_testing.reference_families import ReferenceFamilies

    return ReferenceFamilies(tmp_path_factory.mktemp("families"))("qwen3.5-gated-delta")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, family: Family) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("service"), family)
    try:
        yield service
    finally:
        service.close()


def test_an_uploaded_adapter_answers_as_peft_does(service: Service, family: Family) -> None:
    from lorikeet_testing.tiny_models import VOCAB

    decided = service.upload("helper", family.adapters[ADAPTER].folder)
    assert decided["state"] == "accepted", decided
    service.web.wait_until_ready("helper")
    prompt = torch.randint(VOCAB, (60,), generator=torch.Generator().manual_seed(3)).tolist()
    tokenizer = Tokenizer.from_file(str(family.folder / "tokenizer.json"))
    for model, adapter in (("helper", ADAPTER), ("hybrid", "")):
        body = {"model": model, "prompt": prompt, "max_tokens": 16, "temperature": 0}
        answered = service.ask("POST", "/v1/completions", json=body)
        assert answered.status_code == 200, answered.text
        wanted = tokenizer.decode(family.greedy(prompt, adapter), skip_special_tokens=False)
        assert answered.json()["choices"][0]["text"] == wanted


def test_an_adapter_of_other_sizes_is_refused_by_name(service: Service, tmp_path: Path) -> None:
    from lorikeet_testing.reference_families import ReferenceFamilies

    other = ReferenceFamilies(tmp_path)("qwen3-qk-norm").adapters[ADAPTER].folder
    decided = service.upload("other", other)
    assert decided["state"] == "refused"
    assert "hybrid" in str(decided)


def test_the_state_of_running_requests_is_on_the_host_page(service: Service) -> None:
    hosts = service.ask("GET", "/api/tenants/acme/hosts").json()
    assert "state" in str(hosts)
