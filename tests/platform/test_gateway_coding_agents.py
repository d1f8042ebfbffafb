"""Codex, Claude Code and chat front ends: their requests in every run, the programs themselves in `make test-long`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lorikeet_testing.fake_engine import Behaviour, FakeEngine
from lorikeet_testing.web import ROOT, WebProcess

from scripts.launch.console import install_console_packages, node_bin_dir

# Bodies that the programs sent, without their prose; see `recorded_requests`.
RECORDED = {
    path.stem: json.loads(path.read_text())
    for path in (ROOT / "tests" / "support" / "recorded_requests").glob("*.json")
}
PACKAGES = {
    "codex": "@openai/codex@0.171.0",
    "claude": "@anthropic-ai/claude-code@2.1.332",
    "anthropic_sdk": "@anthropic-ai/sdk@1.14.0",
}
INSTALL_SECONDS, SECONDS = 300.0, 120.0


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000, known_digests_only=True, max_context=200_000)


@pytest.fixture(scope="module")
def http(web: WebProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=web.url, timeout=30, trust_env=False, headers=web.tenants["acme"].bearer) as client:
        yield client


def sent(engine: FakeEngine) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in engine.submits[-1].chat.messages]


@pytest.mark.parametrize(
    ("name", "index"), [(name, index) for name, one in sorted(RECORDED.items()) for index in range(len(one["bodies"]))]
)
def test_recorded_requests(http: httpx.Client, engine: FakeEngine, name: str, index: int) -> None:
    recorded = RECORDED[name]
    engine.behaviour.answers[:] = ["done"]
    answer = http.post(recorded["path"], json=recorded["bodies"][index], headers=recorded.get("headers", {}))
    assert answer.status_code == 200, answer.text
    assert '"done"' in answer.text and "response.failed" not in answer.text
    functions = {tool.name for tool in engine.submits[-1].chat.tools}
    assert functions >= ({"exec_command", "update_goal"} if name == "codex" else {"Bash", "Read", "Write"})


def test_system_messages_within_a_conversation(http: httpx.Client, engine: FakeEngine) -> None:
    """Claude Code sends such messages behind the user's; many chat templates have the role only at the beginning."""
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "system", "content": [{"type": "text", "text": "Today."}]},
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "Later."},
        {"role": "user", "content": "Bye."},
        {"role": "user", "content": "Now."},
    ]
    body = {"model": "support", "max_tokens": 5, "system": "Be brief.", "messages": messages}
    assert http.post("/v1/messages", json=body).status_code == 200
    assert sent(engine) == [
        ("system", "Be brief."),
        ("system", "Be kind."),
        ("user", "Hi.\n<system-reminder>\nToday.\n</system-reminder>"),
        ("assistant", "Hello."),
        ("user", "<system-reminder>\nLater.\n</system-reminder>\nBye."),
        ("user", "Now."),
    ]


# The shapes of requests of chat front ends, as their documentation and settings describe them.
SYSTEM: dict[str, Any] = {"role": "system", "content": "You help."}
SAY: dict[str, Any] = {"role": "user", "content": "say done"}
PARTS: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "say done"}]}
READ_FILE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
CACHED: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
FRONT_ENDS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "Open WebUI": (
        {
            "messages": [SYSTEM, {**SAY, "id": "5f", "timestamp": 1, "models": ["support"]}],
            "chat_id": "5f1", "session_id": "s", "id": "m", "background_tasks": {"title_generation": True},
            "features": {"web_search": False, "code_interpreter": False}, "variables": {"{{USER_NAME}}": "Ada"},
            "params": {}, "tool_servers": [], "filter_ids": [], "model_item": {"id": "support"}, **USAGE,
        },
        {"chat_id", "session_id", "id", "background_tasks", "features", "variables", "params", "tool_servers",
         "filter_ids", "model_item", "messages[].id", "messages[].timestamp", "messages[].models"},
    ),
    "Open WebUI, a title": (
        {"messages": [SAY], "max_completion_tokens": 1000, "stream": False, "metadata": {"task": "title_generation"}},
        {"metadata"},
    ),
    "LibreChat": (
        {"messages": [SYSTEM, {**PARTS, "name": "Ada"}], "user": "6601", "temperature": 1, "top_p": 1,
         "presence_penalty": 0, "frequency_penalty": 0, "stream": True, "promptPrefix": None, "resendFiles": True,
         "imageDetail": "auto", "include_reasoning": True},
        {"user", "resendFiles", "imageDetail"},
    ),
    "LibreChat, dropped parameters of its settings": (
        {"messages": [SAY], "stop": ["||>", "\nUser:"], "stream": True, "safe_prompt": False, "plugins": [],
         "transforms": ["middle-out"]},
        {"plugins", "transforms"},
    ),
    "Cline": (
        {"messages": [
            {"role": "system", "content": [{"type": "text", "text": "You are Cline.", **CACHED}]},
            {"role": "user", "content": [{"type": "text", "text": "Fix it."}]},
            {"role": "assistant", "content": "Reading.", "reasoning_details": [],
             "tool_calls": [{"id": "c1", "type": "function", "index": 0,
                             "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x = 1"}]},
            {"role": "user", "content": [{"type": "text", "text": "say done", **CACHED}]}],
         "tools": [READ_FILE], "tool_choice": "auto", "parallel_tool_calls": False, "temperature": 0,
         "reasoning": {"enabled": False}, "provider": {"sort": "price"}, **USAGE},
        {"provider", "messages[].content[].cache_control", "messages[].reasoning_details"},
    ),
    "Continue": (
        {"messages": [SYSTEM, {**PARTS, **CACHED}], "max_tokens": 4096, "tools": [READ_FILE], "stream": True,
         "stop": ["<|im_end|>"], "prediction": {"type": "content", "content": "x"}, "reasoning": {}},
        {"prediction", "messages[].cache_control"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_requests_of_front_ends(http: httpx.Client, name: str) -> None:
    body, ignored = FRONT_ENDS[name]
    answer = http.post("/v1/chat/completions", json={"model": "support", **body})
    assert answer.status_code == 200, answer.text
    assert set(answer.headers.get("X-Lorikeet-Ignored", "").split(", ")) - {""} == ignored
    if not body.get("stream"):
        assert answer.json()["choices"][0]["message"]["content"] == "done"
        return
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    assert text == "done"
    assert bool(events[-1].get("usage")) == ("stream_options" in body)


def test_continue_completes_code(http: httpx.Client, engine: FakeEngine) -> None:
    """Its completion as one types: the prefix as prompt, and the text behind it."""
    body = {"model": "support", "prompt": "say return x", "suffix": "\n\nprint(f(1))", "max_tokens": 50,
            "temperature": 0.01, "stream": True, "stop": ["<|endoftext|>", "\n\n"], "presence_penalty": 0}  # fmt: skip
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert engine.submits[-1].suffix == "\n\nprint(f(1))"


# -- the programs themselves ---------------------------------------------------------------------------


def installed(program: str, folder: Path) -> dict[str, str]:
    """Install a package from npm, and return the environment of a program that calls this machine only."""
    install_console_packages()  # also finds or fetches Node
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    path = f"{folder}/node_modules/.bin{os.pathsep}{node_bin_dir()}{os.pathsep}{os.environ['PATH']}"
    (folder / "package.json").write_text("{}")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", PACKAGES[program]]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=INSTALL_SECONDS
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {**env, "PATH": path, "HOME": str(folder), "NO_PROXY": "127.0.0.1"}


def run(command: list[str], folder: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.mark.long
def test_codex(web: WebProcess, engine: FakeEngine, tmp_path: Path) -> None:
    env = installed("codex", tmp_path)
    (tmp_path / "config.toml").write_text(
        f'model = "support"\nmodel_provider = "lorikeet"\n[model_providers.lorikeet]\nname = "Lorikeet"\n'
        f'base_url = "{web.url}/v1"\nenv_key = "LORIKEET_KEY"\nwire_api = "responses"\nrequest_max_retries = 0\n'
    )
    env |= {"CODEX_HOME": str(tmp_path), "LORIKEET_KEY": web.tenants["acme"].key}
    engine.behaviour.answers[:] = [call("exec_command", cmd="echo from-$((40 + 2))"), "All is done."]
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    assert "All is done." in run(["codex", "exec", *options, "Please echo."], tmp_path, env)
    result = sent(engine)[-1]
    assert result[0] == "tool" and "from-42" in result[1]
    engine.behaviour.answers[:] = ["Once more."]
    assert "Once more." in run(["codex", "exec", "resume", "--last", *options, "Again."], tmp_path, env)
    assert ("assistant", "All is done.") in sent(engine)


@pytest.mark.long
def test_claude_code(web: WebProcess, engine: FakeEngine, tmp_path: Path) -> None:
    env = installed("claude", tmp_path) | {
        "ANTHROPIC_BASE_URL": web.url,
        "ANTHROPIC_AUTH_TOKEN": web.tenants["acme"].key,
        "ANTHROPIC_MODEL": "support",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "support",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    engine.behaviour.answers[:] = [call("Bash", command="echo from-42", description="Echo."), "All is done."]
    command = ["claude", "-p", "Please echo.", "--allowedTools", "Bash(echo:*)"]
    assert "All is done." in run(command, tmp_path, env)
    assert any(role == "tool" and "from-42" in content for role, content in sent(engine))
    engine.behaviour.answers[:] = ["Once more."]
    assert "Once more." in run(["claude", "-p", "--continue", "Again."], tmp_path, env)
    assert ("assistant", "All is done.") in sent(engine)


@pytest.mark.long
def test_anthropics_typescript_sdk(web: WebProcess, tmp_path: Path) -> None:
    env = installed("anthropic_sdk", tmp_path)
    env |= {"ANTHROPIC_BASE_URL": web.url, "ANTHROPIC_API_KEY": web.tenants["acme"].key}
    program = tmp_path / "anthropic_sdk.mjs"  # packages are looked for beside it
    shutil.copyfile(ROOT / "tests" / "clients" / "node" / program.name, program)
    assert run(["node", str(program)], tmp_path, env).endswith("done\n")
