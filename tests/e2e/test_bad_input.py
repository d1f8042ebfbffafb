"""Everything a client can send wrong: a clear error with a fix, nothing staged, nothing left, everything still up."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from lorikeet_testing.launched import Access, Launched
from safetensors.torch import load, save

TENANT = "acme"
OTHER_TENANT = "globex"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
DEMO = Path(__file__).parents[2] / "demo"
Files = dict[str, bytes]
Tensors = dict[str, torch.Tensor]


def good() -> Files:
    """A genuine adapter that the platform accepts."""
    folder = next(path.parent for path in sorted((DEMO / "adapters").rglob(CONFIG)))
    return {name: (folder / name).read_bytes() for name in (CONFIG, WEIGHTS)}


def with_config(**changes: Any) -> Files:
    files = good()
    return {**files, CONFIG: json.dumps({**json.loads(files[CONFIG]), **changes}).encode()}


def with_tensors(change: Callable[[Tensors], Any]) -> Files:
    files = good()
    tensors = load(files[WEIGHTS])
    change(tensors)
    return {**files, WEIGHTS: save(tensors)}


def drop_one(tensors: Tensors) -> None:
    del tensors[min(tensors)]


def add_one(tensors: Tensors) -> None:
    tensors["base_model.model.model.layers.0.self_attn.extra_proj.lora_A.weight"] = torch.zeros(4, 4)


def not_a_number(tensors: Tensors) -> None:
    tensors[min(tensors)].view(-1)[0] = float("nan")


def other_width(tensors: Tensors) -> None:
    """As if it had been trained on a wider model."""
    for name, tensor in list(tensors.items()):
        tensors[name] = torch.zeros(tensor.shape[0], 2048) if "lora_A" in name else torch.zeros(2048, tensor.shape[1])


def header_out_of_bounds() -> Files:
    header = json.dumps({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 1 << 40]}}).encode()
    return {**good(), WEIGHTS: struct.pack("<Q", len(header)) + header + b"\0" * 16}


def zipped(members: dict[str, bytes]) -> Files:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return {"adapter.zip": buffer.getvalue()}


def tarred(add: Callable[[tarfile.TarFile], None]) -> Files:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        add(archive)
    return {"adapter.tar.gz": buffer.getvalue()}


def add_file(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def climbing_tar(archive: tarfile.TarFile) -> None:
    for name, data in good().items():
        add_file(archive, f"../../../../tmp/lorikeet-escaped/{name}", data)


def linking_tar(archive: tarfile.TarFile) -> None:
    link = tarfile.TarInfo(WEIGHTS)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive.addfile(link)
    add_file(archive, CONFIG, good()[CONFIG])


def zip_bomb() -> Files:
    return zipped({CONFIG: good()[CONFIG], WEIGHTS: b"\0" * (200 << 20)})


@dataclass(frozen=True)
class Case:
    name: str
    files: Callable[[], Files]
    codes: frozenset[str]


def case(name: str, files: Callable[[], Files], *codes: str) -> Case:
    return Case(name, files, frozenset(codes))


CASES = [
    case("wrong base", lambda: with_tensors(other_width), "wrong_base_model", "shape_mismatch"),
    case("rank over limit", lambda: with_config(r=4096), "rank_too_high", "rank_mismatch"),
    case("missing tensor", lambda: with_tensors(drop_one), "missing_tensor"),
    case("extra tensor", lambda: with_tensors(add_one), "extra_tensor", "unexpected_tensor"),
    case("NaN", lambda: with_tensors(not_a_number), "not_finite"),
    case("QALoRA", lambda: with_config(use_qalora=True), "unsupported_feature"),
    case("DoRA without magnitudes", lambda: with_config(use_dora=True), "missing_tensor"),
    case("modules to save", lambda: with_config(modules_to_save=["norm"]), "unsupported_feature"),
    case("pickle", lambda: {CONFIG: good()[CONFIG], "adapter_model.bin": pickle.dumps({"a": 1})}, "pickle_refused"),
    case("pickle in disguise", lambda: {**good(), WEIGHTS: pickle.dumps({"a": 1})}, "pickle_refused"),
    case("truncated", lambda: {**good(), WEIGHTS: good()[WEIGHTS][:-100]}, "invalid_safetensors"),
    case("offsets out of bounds", header_out_of_bounds, "invalid_safetensors"),
    case("config is no JSON", lambda: {**good(), CONFIG: b"{not json"}, "invalid_config"),
    case("config is deep JSON", lambda: {**good(), CONFIG: b"[" * 100_000}, "invalid_config"),
    case("weights only", lambda: {WEIGHTS: good()[WEIGHTS]}, "missing_file"),
    case("climbing zip", lambda: zipped({f"../../{k}": v for k, v in good().items()}), "unsafe_archive"),
    case("climbing tar", lambda: tarred(climbing_tar), "unsafe_archive"),
    case("linking tar", lambda: tarred(linking_tar), "unsafe_archive"),
    case("zip bomb", zip_bomb, "archive_bomb", "upload_too_large", "file_too_large"),
    case("no archive at all", lambda: {"adapter.zip": b"hello"}, "bad_archive"),
    case("two adapters", lambda: zipped({f"{d}/{k}": v for d in "ab" for k, v in good().items()}), "several_adapters"),
]


def send(api: httpx.Client, name: str, files: Files) -> httpx.Response:
    parts = [("files", (file, data, "application/octet-stream")) for file, data in files.items()]
    return api.post(f"/api/tenants/{TENANT}/uploads", data={"name": name}, files=parts)


def decided(api: httpx.Client, upload: dict[str, Any], limit_s: float = 60) -> dict[str, Any]:
    end = time.monotonic() + limit_s
    while upload["state"] in {"received", "validating"}:
        assert time.monotonic() < end, upload
        time.sleep(0.1)
        upload = api.get(f"/api/tenants/{TENANT}/uploads/{upload['id']}").json()
    return upload


def problems_of(upload: dict[str, Any]) -> list[dict[str, Any]]:
    found = list((upload.get("report") or {}).get("problems", []))
    return [*found, upload["reason"]] if upload.get("reason") else found


def fleet_state(api: httpx.Client) -> tuple[Any, ...]:
    """What must not change: the engine's process, what it holds, what the tenant has."""
    hosts = api.get(f"/api/tenants/{TENANT}/hosts").json()
    held = [(host["name"], host["boot_id"], sorted(str(a["digest"]) for a in host["adapters"])) for host in hosts]
    adapters = sorted(adapter["name"] for adapter in api.get(f"/api/tenants/{TENANT}/adapters").json())
    return held, adapters


def left_over(launched: Launched) -> list[Path]:
    folders = [launched.var / "artifacts" / name for name in ("incoming", "uploads")]
    # Unlike rglob, walk passes over a folder that is removed meanwhile.
    walks = [walk for folder in folders for walk in os.walk(folder)]
    return [Path(below, name) for below, names, files in walks for name in [*names, *files]]


def settled(read: Callable[[], Any], wanted: Any) -> Any:
    """What `read` says at last: heartbeats and the removal of files come a moment after an answer."""
    end = time.monotonic() + 10
    while (found := read()) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def before(api: httpx.Client) -> tuple[Any, ...]:
    """The fleet once every demo adapter has been reported by a heartbeat."""
    ready = len(api.get("/v1/models").json()["data"]) - 1
    settled(lambda: len(fleet_state(api)[0][0][2]) >= ready, True)
    return fleet_state(api)


@pytest.fixture(autouse=True)
def unharmed(api: httpx.Client, launched: Launched, before: tuple[Any, ...]) -> Iterator[None]:
    """After each test the same engine process holds the same adapters, answers, and no upload's files are left."""
    yield
    assert settled(lambda: fleet_state(api), before) == before
    model = api.get("/v1/models").json()["data"][0]["id"]
    answer = api.post("/v1/completions", json={"model": model, "prompt": "Hello", "max_tokens": 4})
    assert answer.status_code == 200, answer.text
    assert settled(lambda: left_over(launched), []) == []
    assert not Path("/tmp/lorikeet-escaped").exists()


@pytest.mark.parametrize("bad", CASES, ids=lambda bad: bad.name.replace(" ", "-"))
def test_a_bad_upload_is_refused_with_its_reason(api: httpx.Client, bad: Case) -> None:
    answer = send(api, "bad-upload", bad.files())
    assert answer.headers["X-Request-Id"]
    if answer.status_code == 202:
        upload = decided(api, answer.json())
        assert upload["state"] == "refused", upload
        problems = problems_of(upload)
    else:
        assert 400 <= answer.status_code < 500, answer.text
        problems = [answer.json()["error"]]
    assert {problem["code"] for problem in problems} & bad.codes, problems
    assert all(problem["message"] and problem["fix"] for problem in problems)


def test_an_oversized_upload_is_refused_at_the_door(api: httpx.Client) -> None:
    answer = send(api, "too-big", {WEIGHTS: b"\0" * (70 << 20)})
    assert answer.status_code == 413, answer.text
    error = answer.json()["error"]
    assert error["code"] in {"upload_too_large", "body_too_large"}
    assert error["fix"]


@pytest.mark.parametrize("name", ["", "a/b", "../x", "x" * 300, "space d", "lorikeet-demo", "a@b"])
def test_a_bad_adapter_name_is_refused(api: httpx.Client, name: str) -> None:
    answer = send(api, name, good())
    assert answer.status_code in {400, 409}, answer.text
    assert answer.json()["error"]["fix"]
    assert answer.json()["error"]["param"] == "name"


CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (CHAT, b"{not json", 400, None),
        (CHAT, b"[1, 2]", 400, None),
        (CHAT, b"", 400, None),
        (CHAT, b"\xff\xfe", 400, None),
        (CHAT, b"[" * 100_000, 400, None),
        (CHAT, {"messages": MESSAGES}, 400, None),
        (CHAT, {"model": "nope", "messages": MESSAGES}, 404, "model_not_found"),
        (CHAT, {"model": "nope@v9", "messages": MESSAGES}, 404, "model_not_found"),
        (CHAT, {"model": "lorikeet-demo"}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": "hello"}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": []}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": [{"role": "user", "content": 5}]}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": MESSAGES, "temperature": "hot"}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": MESSAGES, "max_tokens": -1}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": MESSAGES, "n": 10_000}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": MESSAGES, "top_logprobs": 99, "logprobs": True}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": MESSAGES, "stop": [1]}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": MESSAGES, "logit_bias": {"x": 1}}, 400, None),
        (CHAT, {"model": "lorikeet-demo", "messages": [{"role": "user", "content": "a " * 50_000}]}, 400,
         "context_length_exceeded"),
        ("/v1/completions", {"model": "lorikeet-demo", "prompt": [99_999_999]}, 400, None),
        ("/v1/completions", {"model": "lorikeet-demo", "prompt": "word " * 50_000}, 400, "context_length_exceeded"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_an_openai_error(
    api: httpx.Client, path: str, body: Any, status: int, code: str | None, stream: bool
) -> None:
    content = body if isinstance(body, bytes) else json.dumps({**body, "stream": stream}).encode()
    answer = api.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["fix"] and error["fix"] in error["message"]
    assert code is None or error["code"] == code


@pytest.mark.parametrize("key", ["", "nonsense", "lk_00000000_" + "0" * 40])
def test_no_key_no_answer(access: Access, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    for path in ("/v1/models", f"/api/tenants/{TENANT}/adapters"):
        answer = httpx.get(f"{access.url}{path}", headers=headers, timeout=60, trust_env=False)
        assert answer.status_code == 401, answer.text
        assert answer.json()["error"]["fix"]


@pytest.fixture(scope="module")
def stranger(access: Access) -> Iterator[httpx.Client]:
    """A member of the other demo tenant, by session as a browser has one."""
    with httpx.Client(base_url=access.url, timeout=60, trust_env=False) as client:
        token = client.get("/api/session").json()["csrf_token"]
        login = {"email": "globex@lorikeet.local", "password": access.password}
        answer = client.post("/api/session", json=login, headers={"X-CSRFToken": token})
        assert answer.status_code == 200, answer.text
        client.headers["X-CSRFToken"] = answer.json()["csrf_token"]
        yield client


def test_another_tenants_adapter_is_not_there(api: httpx.Client, stranger: httpx.Client) -> None:
    mine = api.get(f"/api/tenants/{TENANT}/adapters").json()[0]["name"]
    for path in ("adapters", "overview", "keys", f"adapters/{mine}", f"adapters/{mine}/versions/1"):
        assert stranger.get(f"/api/tenants/{TENANT}/{path}").status_code == 404
        assert api.get(f"/api/tenants/{OTHER_TENANT}/{path}").status_code == 404
    assert stranger.get(f"/api/tenants/{OTHER_TENANT}/adapters/{mine}").status_code == 404
    key = stranger.post(f"/api/tenants/{OTHER_TENANT}/keys", json={"name": "mine"}).json()["secret"]
    theirs = {"Authorization": f"Bearer {key}"}
    models = [model["id"] for model in api.get("/v1/models", headers=theirs).json()["data"]]
    assert mine not in models
    answer = api.post(CHAT, json={"model": mine, "messages": MESSAGES}, headers=theirs)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    hosts = stranger.get(f"/api/tenants/{OTHER_TENANT}/hosts").json()
    assert hosts
    assert all(adapter["name"] is None and adapter["digest"] is None for host in hosts for adapter in host["adapters"])


@pytest.mark.parametrize("path", ["/api/tenants/nobody/overview", "/api/nothing", "/v1/nothing"])
def test_what_is_not_there_is_404_with_a_fix(api: httpx.Client, path: str) -> None:
    answer = api.get(path)
    assert answer.status_code == 404, answer.text
    assert answer.json()["error"]["fix"]
