"""A hook of MkDocs that makes the documentation's reference pages from the code whenever the site is built.

API          frontend/openapi.json, which `make schema` keeps current
command line the argument parsers of `lorikeet` and of the engine
errors       every call in the sources that gives a code, a message and a fix
metrics      the registries of the web process and of an engine
settings     the fields of `control_plane/core/config.py`, with their purposes from docs/operations/settings.md
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("platform/control_plane", "platform/lorikeet_cli", "inference_engine/lora_engine")
CODE = re.compile(r"^[a-z][a-z0-9]*(_[a-z0-9]+)+$")
GENERATED = "*Made from the code when this site is built.*\n\n"
# A program for a process with Django: it prints every metric that is declared on import.
LIST_METRICS = """
import importlib, json, pkgutil, django
django.setup()
import control_plane
for module in pkgutil.walk_packages(control_plane.__path__, "control_plane."):
    if not any(part in module.name for part in (".migrations", ".management", ".settings")):
        importlib.import_module(module.name)
from prometheus_client import REGISTRY
from control_plane.core.metrics.registry import INSTALLATION
shown = [*REGISTRY.collect(), *INSTALLATION.collect()]
print(json.dumps([[m.name, m.type, m.documentation] for m in shown if m.name.startswith("lorikeet")]))
"""


class ErrorText(NamedTuple):
    """An error as a call in the sources makes it. `status` is "" if the call names none."""

    code: str
    status: str
    message: str
    fix: str
    package: str


def api_page() -> str:
    """Return the page of the OpenAPI schema's operations, by tag."""
    schema = json.loads((ROOT / "frontend" / "openapi.json").read_text())
    by_tag: dict[str, list[str]] = {}
    for path, operations in sorted(schema["paths"].items()):
        for method, operation in operations.items():
            if method in ("get", "post", "put", "patch", "delete", "head", "options"):
                tag = (operation.get("tags") or ["other"])[0]
                by_tag.setdefault(tag, []).append(_operation(method, path, operation))
    lead = "The OpenAPI schema itself is at `/api/schema` of a running server, and can be tried out at `/api/docs`.\n"
    return "\n".join([lead, *(f"\n## {tag}\n\n" + "\n".join(rows) for tag, rows in sorted(by_tag.items()))])


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    text = " ".join(str(operation.get("summary") or operation.get("description") or "").split())
    lines = [f"### `{method.upper()} {path}`\n", f"{text}\n"]
    for parameter in operation.get("parameters", []):
        kind = parameter.get("schema", {}).get("type", "string")
        note = " ".join(str(parameter.get("description", "")).split())
        need = ", required" if parameter.get("required") else ""
        lines.append(f"- `{parameter['name']}` ({parameter['in']}, {kind}{need}) {note}")
    body = operation.get("requestBody", {}).get("content", {})
    names = sorted({_schema_name(content) for content in body.values()} - {""})
    if names:
        lines.append(f"- body: `{'`, `'.join(names)}`")
    answers = ", ".join(
        f"`{status}` {answer.get('description', '')}".strip() for status, answer in operation["responses"].items()
    )
    return "\n".join([*lines, f"- answers: {answers}", ""])


def _schema_name(content: Mapping[str, Any]) -> str:
    return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]


def cli_page() -> str:
    sys.path[:0] = [str(ROOT / "platform"), str(ROOT / "inference_engine")]
    from lora_engine.server import arguments
    from lorikeet_cli.main import parser

    client = "\n".join(_parser_text(command) for command in _commands(parser()))
    engine = _parser_text(arguments._parser())
    return f"## `lorikeet`, for people with an account or a key\n\n{client}\n## `lora_engine`, on each host\n\n{engine}"


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _commands(command)


def _parser_text(parser: argparse.ArgumentParser) -> str:
    os.environ["COLUMNS"] = "100"
    return f"### `{parser.prog}`\n\n```text\n{parser.format_help().rstrip()}\n```\n"


def errors_page() -> str:
    """Return the page of error codes, with their texts and statuses in the sources."""
    texts = sorted({error for folder in SOURCES for error in _errors_in(ROOT / folder)})
    by_code: dict[str, list[ErrorText]] = {}
    for error in texts:
        by_code.setdefault(error.code, []).append(error)
    lead = (
        "Every error has a `code` for programs, a `message` that says what happened and a `fix` that says what to do. "
        "`…` stands for a value of the request.\n\n"
        "| code | status | what happened | what to do |\n|---|---|---|---|\n"
    )
    rows = [
        f"| `{code}` | {', '.join(sorted({e.status for e in errors} - {''})) or ' '} "
        f"| {'<br>'.join(dict.fromkeys(_cell(e.message) for e in errors))} "
        f"| {'<br>'.join(dict.fromkeys(_cell(e.fix) for e in errors))} |"
        for code, errors in by_code.items()
    ]
    return lead + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _errors_in(folder: Path) -> Iterator[ErrorText]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (error := _error(node, folder.name)):
                yield error


def _error(call: ast.Call, package: str) -> ErrorText | None:
    """Return the error that a call makes from a code and two sentences, positional or named; None for other calls."""
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    texts = [text for argument in call.args if (text := _text(argument)) is not None]
    code = _text(named["code"]) if "code" in named else None
    if code is None and texts and CODE.match(texts[0]):
        code, texts = texts[0], texts[1:]
    texts += [text for name in ("message", "fix") if name in named and (text := _text(named[name])) is not None]
    if code is None or not CODE.match(code) or len(texts) < 2 or not all(" " in text for text in texts[:2]):
        return None
    numbers = [status for node in (*call.args[:1], named.get("status")) if (status := _status(node))]
    return ErrorText(code, numbers[0] if numbers else "", texts[0], texts[1], package)


def _status(node: ast.expr | None) -> str:
    """Return the HTTP status in a node of the syntax tree; "" if it holds none."""
    is_number = isinstance(node, ast.Constant) and isinstance(node.value, int)
    return str(node.value) if is_number and 400 <= node.value < 600 else ""  # type: ignore[union-attr]


def _text(node: ast.expr) -> str | None:
    """Return a literal string, an f-string with … for its fields, or the first of a choice between two of them."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "…" for part in node.values)
    if isinstance(node, ast.IfExp):
        return _text(node.body)
    return None


def metrics_page() -> str:
    return "\n".join(
        [
            "## Web processes\n\n`GET /metrics` with `LORIKEET_METRICS_TOKEN`.\n",
            _metric_table(_web_metrics()),
            "\n## Engine hosts\n\n`--metrics-port`.\n",
            _metric_table(_engine_metrics()),
        ]
    )


def _web_metrics() -> Iterable[tuple[str, str, str]]:
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "control_plane.settings"}
    roots = [str(ROOT / "platform"), str(ROOT / "inference_engine")]
    env["PYTHONPATH"] = os.pathsep.join(roots)
    printed = subprocess.check_output([sys.executable, "-c", LIST_METRICS], env=env, text=True)
    return [tuple(row) for row in json.loads(printed.splitlines()[-1])]


def _engine_metrics() -> Iterable[tuple[str, str, str]]:
    sys.path[:0] = [str(ROOT / "inference_engine")]
    from lora_engine.server.metrics import HostMetrics

    lines = HostMetrics().text().splitlines()
    kinds = dict(line.split(" ")[2:4] for line in lines if line.startswith("# TYPE "))
    for line in lines:
        if line.startswith("# HELP "):
            _, _, name, text = line.split(" ", 3)
            yield name, kinds[name], text


def _metric_table(rows: Iterable[tuple[str, str, str]]) -> str:
    lines = [f"| `{name}` | {kind} | {_cell(text)} |" for name, kind, text in rows]
    return "\n".join(["| metric | kind | |", "|---|---|---|", *lines, ""])


def settings_page() -> str:
    """Return the page of settings, with type, default and bounds of each."""
    sys.path[:0] = [str(ROOT / "platform")]
    from control_plane.core.config import Settings

    table = (ROOT / "docs" / "operations" / "settings.md").read_text()
    purposes = dict(re.findall(r"^\| `(LORIKEET_\w+)` \| .*? \| (.*?) \|$", table, re.MULTILINE))
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"LORIKEET_{name.upper()}"
        bounds = ", ".join(_bound(rule) for rule in field.metadata if _bound(rule))
        purpose = re.sub(r"\]\((?!\.\./|https?:)", "](../operations/", purposes.get(variable, ""))
        default = field.get_default(call_default_factory=True)
        shown = str(default).replace(f"{ROOT}/", "") if default not in ("", None, {}) else ""
        rows.append(
            f"| `{variable}` | {_kind(field.annotation)} | {f'`{shown}`' if shown else ''} | {bounds} | {purpose} |"
        )
    lead = (
        "Web processes, workers, beat and watcher read these variables. An engine has options on its command line.\n\n"
    )
    return lead + "\n".join(["| variable | type | default | bounds | |", "|---|---|---|---|---|", *rows, ""])


def _kind(annotation: object) -> str:
    """Return the name of a type for a reader: `int`, `path`, `name=address pairs`."""
    names = {"Rate": "rate, as 10/min", "Path": "path", "dict": "name=address pairs", "NoneType": ""}
    parts = getattr(annotation, "__args__", None) if not hasattr(annotation, "__origin__") else None
    kinds = [getattr(part, "__name__", str(part)) for part in parts or [annotation]]
    return " or ".join(filter(None, (names.get(kind, kind) for kind in kinds)))


def _bound(rule: object) -> str:
    """Return a rule of pydantic as a sign and a number; "" for a rule that is no bound."""
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    return ", ".join(f"{sign} {getattr(rule, name)}" for name, sign in signs.items() if hasattr(rule, name))


PAGES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "reference/api.md": ("API operations", api_page),
    "reference/command-line.md": ("Command line", cli_page),
    "reference/errors.md": ("Errors", errors_page),
    "reference/metrics.md": ("Metrics", metrics_page),
    "reference/settings.md": ("Settings", settings_page),
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site (called by MkDocs)."""
    from mkdocs.structure.files import File

    for uri, (title, make) in PAGES.items():
        files.append(File.generated(config, uri, content=f"# {title}\n\n{GENERATED}{make()}"))
    return files
