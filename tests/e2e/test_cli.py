"""The command line against the running product: log in, upload, promote, keys, usage, tail.

Its hundred processes are forks; `test_documentation.py` starts it as users do.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from lorikeet_testing.forked import run_forked
from lorikeet_testing.launched import ROOT, Access
from lorikeet_testing.web import eventually

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LORIKEET_")}
    path = os.pathsep.join([str(ROOT / "platform"), kept.get("PYTHONPATH", "")])
    return {**kept, "PYTHONPATH": path, "XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def lorikeet(environment: dict[str, str]) -> Run:
    def run(*arguments: str, fails: bool = False, **env: str) -> Result:
        done = run_forked(["lorikeet_cli", *arguments], env={**environment, **env}, folder=ROOT)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def member(lorikeet: Run, access: Access) -> Run:
    """Logged in with a password."""
    lorikeet("login", access.url, "--email", access.email, "--tenant", "acme", LORIKEET_PASSWORD=access.password)
    return lorikeet


def test_an_adapters_life(lorikeet: Run, access: Access, tmp_path: Path) -> None:
    lorikeet("login", access.url, "--tenant", "acme", "--key", access.key)
    kept = tmp_path / "config" / "lorikeet" / "profiles.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    folder = ROOT / "demo" / "uploads" / "emoji"
    made = lorikeet("upload", str(folder), "--name", "from-cli", "--description", "By hand")
    assert made.stdout == "from-cli@v1\n"
    assert "accepted as from-cli@v1" in made.stderr
    again = lorikeet("upload", str(ROOT / "demo" / "uploads" / "emoji.zip"), "--name", "from-cli")
    assert "from-cli@v1" in again.stdout
    assert "from-cli" in lorikeet("adapters").stdout
    checkpoint = tmp_path / "a training" / "checkpoint-20"
    shutil.copytree(folder, checkpoint)
    third = lorikeet("upload", str(checkpoint.parent), "--name", "from-cli", "--json")
    assert json.loads(third.stdout)["number"] == 1 and "checkpoint-20" in third.stderr
    sent = json.loads(lorikeet("uploads", "--limit", "1", "--json").stdout)[0]
    assert "from-cli@v1" in lorikeet("uploads", "show", sent["id"]).stdout
    lorikeet("promote", "from-cli@v1")
    assert "live" in lorikeet("adapters", "from-cli").stdout
    answer = httpx.post(
        f"{access.url}/v1/chat/completions",
        headers=access.bearer,
        json={"model": "from-cli", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4},
        timeout=60,
        trust_env=False,
    )
    assert answer.status_code == 200


def test_refusals_say_what_to_do(member: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    assert "save_pretrained" in member("upload", str(broken), fails=True).stderr
    (broken / "model.safetensors").write_bytes(b"")
    assert "model.safetensors is a whole model" in member("upload", str(broken), fails=True).stderr
    (broken / "adapter_config.json").write_text("{}")
    (broken / "adapter_model.safetensors").write_bytes(b"not tensors")
    refused = member("upload", str(broken), fails=True).stderr
    assert "The adapter was refused:\n  - " in refused
    assert member("promote", "nobody@v1", fails=True).stderr.strip()
    assert "like support@v7" in member("promote", "support", fails=True).stderr


def test_keys(member: Run, access: Access) -> None:
    made = member("keys", "create", "for a robot", "--scope", "infer", "--days", "7")
    secret = made.stdout.strip()
    assert secret.startswith("lk_")
    bearer = {"Authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=access.url, headers=bearer, timeout=60, trust_env=False) as robot:
        assert robot.get("/v1/models").status_code == 200
        assert "for a robot" in member("keys").stdout
        assert "for a robot" in member("keys", "list").stdout
        member("keys", "revoke", "for a robot")
        assert robot.get("/v1/models").status_code == 401
    assert "0 active keys" in member("keys", "revoke", "for a robot", fails=True).stderr


def test_usage_and_tail(member: Run, api: httpx.Client, environment: dict[str, str]) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "lorikeet_cli", "tail", "--seconds", "60"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None and watching.stderr is not None
    with watching:
        assert "Waiting" in watching.stderr.readline()
        assert api.post("/v1/completions", json={"model": "lorikeet-demo", "prompt": "Hi", "max_tokens": 3}).is_success
        shown = next(line for line in watching.stdout if "lorikeet-demo" in line)
        watching.terminate()
    assert "finished" in shown
    assert "Waiting" in member("tail", "--seconds", "1").stderr
    table = member("usage", "--days", "7").stdout
    heading = ["adapter", "requests", "prompt", "tokens", "output", "tokens", "GPU", "time", "cost"]
    assert table.splitlines()[0].split() == heading
    assert "total" in table

    def rows() -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(member("usage", "--csv", "-").stdout)))

    # What was asked a moment ago is added to its hour every few seconds.
    eventually(lambda: sum(int(row["requests"]) for row in rows()) >= 1, 30, what="the request in its hour")
    assert "total" in member("usage", "--month", rows()[0]["start"][:7]).stdout
    assert "total" in member("usage", "--base", "lorikeet-demo").stdout
    assert member("usage", "--base", "lorikeet-demo", "--csv", "-").stdout.splitlines()[1:]
    assert 'No base model is called "nope"' in member("usage", "--base", "nope", fails=True).stderr


def test_strangers(lorikeet: Run, access: Access) -> None:
    assert "lorikeet login" in lorikeet("usage", fails=True).stderr
    nowhere = ("login", "http://127.0.0.1:1", "--tenant", "x", "--key", "k")
    away = lorikeet(*nowhere, fails=True)
    assert "does not answer" in away.stderr and away.returncode == 3
    wrong = lorikeet("login", access.url, "--tenant", "acme", "--key", "lk_abcdefgh_wrong", fails=True)
    assert "request " in wrong.stderr and wrong.returncode == 4
    assert "lorikeet login" in lorikeet("usage", fails=True).stderr, "a wrong key is not kept"
    settings = {"LORIKEET_URL": access.url, "LORIKEET_TENANT": "acme", "LORIKEET_KEY": access.key}
    assert "total" in lorikeet("usage", **settings).stdout


def test_batches_and_their_files(member: Run, lorikeet: Run, access: Access, tmp_path: Path) -> None:
    body = {"model": "pirate", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    request = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    good, bad, results = tmp_path / "requests.jsonl", tmp_path / "bad.jsonl", tmp_path / "results.jsonl"
    good.write_text(json.dumps(request))
    bad.write_text('{"custom_id": "a"}')
    assert "with --key" in member("batches", "create", str(good), fails=True).stderr
    member("keys", "create", "for batches", "--scope", "infer")
    done = member("batches", "create", str(good), "--key", "for batches", "--wait")
    assert "completed: 1 of 1, as for batches" in done.stderr
    batch = done.stdout.strip()
    member("batches", "download", batch, "--to", str(results))
    assert json.loads(results.read_text())["custom_id"] == "a"
    assert batch in member("batches").stdout and "requests.jsonl" in member("files").stdout
    assert "There is nothing left to cancel" in member("batches", "cancel", batch, fails=True).stderr
    assert json.loads(member("batches", "show", batch, "--json").stdout)["counts"]["completed"] == 1
    assert "no file of requests that failed" in member("batches", "download", batch, "--errors", fails=True).stderr
    refused = member("batches", "create", str(bad), "--key", "for batches", "--wait", fails=True)
    assert "line 1: method must be POST" in refused.stderr
    file = member("files").stdout.splitlines()[1].split()[0]
    assert member("files", "download", file).stdout == bad.read_text()
    member("files", "delete", file)
    assert file not in member("files").stdout
    lorikeet("login", access.url, "--tenant", "acme", "--key", access.key)
    assert lorikeet("batches", "create", str(good)).stdout.startswith("batch_")


def test_evaluations(lorikeet: Run, access: Access, tmp_path: Path) -> None:
    """By the real engine: what is expected is what the base model answers."""
    bearer = {"Authorization": f"Bearer {access.key}"}
    own = httpx.Client(base_url=access.url, headers=bearer, trust_env=False, timeout=60)
    base = own.get("/v1/models").json()["data"][0]["id"]
    items = []
    for prompt in ("Once upon a time", "The parrot says", "äöü 你好"):
        body = {"model": base, "prompt": prompt, "max_tokens": 8, "temperature": 0}
        answer = own.post("/v1/completions", json=body).json()["choices"][0]["text"]
        items.append({"prompt": prompt, "expected": answer})
    file = tmp_path / "of-base.jsonl"
    file.write_text("\n".join(json.dumps(item) for item in items if item["expected"].strip()))
    lorikeet("login", access.url, "--tenant", "acme", "--key", access.key)
    for metric in ("exact", "logprob"):
        made = lorikeet("evaluation-sets", "add", str(file), "--name", metric, "--metric", metric, "--max-tokens", "8")
        assert f"scored by {metric}" in made.stderr
        assert metric in lorikeet("evaluation-sets").stdout
        done = lorikeet("evaluate", "pirate@v1", "--set", metric)
        assert done.stdout.startswith(f"pirate@v1  {metric} ({metric}): ")
    found = own.get("/api/tenants/acme/adapters/pirate/versions/1").json()["evaluations"]
    scores = {each["set"]: each for each in found}
    assert scores["exact"]["base"] == 1 and scores["exact"]["score"] < 1
    assert 0 > scores["logprob"]["base"] > scores["logprob"]["score"]
    assert "completed" in lorikeet("evaluations").stdout
    lorikeet("promotion-rule", "pirate", "--set", "exact", "--minimum", "1", "--may-be-worse")
    assert "below 1" in lorikeet("promote", "pirate@v1", fails=True).stderr
    assert "names this set" in lorikeet("evaluation-sets", "remove", "exact", fails=True).stderr
    lorikeet("promotion-rule", "pirate", "--remove")
    for metric in ("exact", "logprob"):
        lorikeet("evaluation-sets", "remove", metric)


def test_an_upload_with_its_evaluation(lorikeet: Run, access: Access, tmp_path: Path) -> None:
    lorikeet("login", access.url, "--tenant", "acme", "--key", access.key)
    file, emoji = tmp_path / "Of emoji!.jsonl", str(ROOT / "demo" / "uploads" / "emoji")
    file.write_text('{"prompt": "Once upon a time", "expected": "x"}\n{"prompt": "Hello", "expected": "y"}\n')
    shared = (emoji, "--name", "scored-from-cli", "--evaluate")
    done = lorikeet("upload", *shared, str(file), "--metric", "contains", "--max-tokens", "4")
    version, score = done.stdout.splitlines()
    assert version == "scored-from-cli@v1"
    assert score.startswith("scored-from-cli@v1  of-emoji-") and "(contains): " in score
    made = "of-emoji-" + score.partition("of-emoji-")[2].split()[0]
    assert f"{made}: 2 items" in done.stderr
    # The same file is the same set, by its content or by its name; a damaged one is refused before anything is sent.
    again = lorikeet("upload", *shared, str(file), "--metric", "contains", "--max-tokens", "4")
    assert "2 items" not in again.stderr and made in again.stdout
    assert made in lorikeet("upload", *shared, made).stdout
    file.write_text("{}")
    refused = lorikeet("upload", emoji, "--name", "never-sent", "--evaluate", str(file), fails=True)
    assert "line 1" in refused.stderr.lower() and "never-sent" not in lorikeet("adapters").stdout
    assert "neither a file" in lorikeet("upload", *shared, "no-such-set", fails=True).stderr


def test_an_upload_with_its_own_chat_template(lorikeet: Run, access: Access, tmp_path: Path) -> None:
    """From the folder to the prompt that the real engine reads, and an answer to it."""
    folder = tmp_path / "own-template"
    shutil.copytree(ROOT / "demo" / "uploads" / "emoji", folder)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}Q: {{ m.content }}{% endfor %} A:")
    lorikeet("login", access.url, "--tenant", "acme", "--key", access.key)
    assert lorikeet("upload", str(folder)).stdout == "own-template@v1\n"
    bearer = {"Authorization": f"Bearer {access.key}"}
    with httpx.Client(base_url=access.url, headers=bearer, trust_env=False, timeout=60) as own:
        shown = own.get("/api/tenants/acme/adapters/own-template/versions/1").json()
        assert shown["chat_template"]["source"].startswith("{% for m in messages %}")
        assert shown["effect"]["prompts"][0]["prompt"].startswith("Q: "), "it was tried so, too"
        messages = [{"role": "user", "content": "Hello"}]
        tokens = own.post("/tokenize", json={"model": "own-template", "messages": messages}).json()["tokens"]
        told = own.post("/detokenize", json={"model": "own-template", "tokens": tokens}).json()
        assert told == {"prompt": "Q: Hello A:"}
        body = {"model": "own-template", "messages": messages, "max_tokens": 5}
        usage = own.post("/v1/chat/completions", json=body).json()["usage"]
        assert usage["prompt_tokens"] == len(tokens)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}")
    assert "not valid Jinja" in lorikeet("upload", str(folder), fails=True).stderr


def test_origins(member: Run) -> None:
    origin = "https://app.example.org"
    member("origins", "allow", origin)
    assert member("origins").stdout == f"{origin}\n"
    assert "as browsers send it" in member("origins", "allow", "app.example.org/x", fails=True).stderr
    member("origins", "remove", origin)
    assert member("origins", "list").stdout == ""
    assert "is not allowed" in member("origins", "remove", origin, fails=True).stderr


def test_what_is_pinned_is_computed_before_anybody_asks(
    member: Run, access: Access, api: httpx.Client, tmp_path: Path
) -> None:
    """With the real engine: the first request that begins with a pinned prefix has its tokens from the cache."""
    prompt = f"You answer for house {uuid.uuid4()}. " + "Be kind, be brief, and never guess. " * 12
    (tmp_path / "house.txt").write_text(prompt)
    assert member("pin", "lorikeet-demo", "--prefix", str(tmp_path / "house.txt")).stdout == "house\n"
    eventually(lambda: "1 kept" in member("pins").stdout, 20, what="the pinned prefix")
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "Who are you?"}]
    body = {"model": "lorikeet-demo", "messages": messages, "max_tokens": 1}
    usage = api.post("/v1/chat/completions", json=body).json()["usage"]
    assert usage["prompt_tokens"] > usage["prompt_tokens_details"]["cached_tokens"] > 64
    other = api.post("/v1/chat/completions", json={**body, "cache_salt": "other"}).json()["usage"]
    assert other["prompt_tokens_details"]["cached_tokens"] == 0
    spent = api.get("/api/tenants/acme/pinned-prefixes/house").json()
    assert spent["content"]["messages"][0]["content"] == prompt
    member("unpin", "house", "--prefix")
    assert "house" not in member("pins").stdout
