"""Operations in sequence, each with what the ones before it answered: what was made is read, changed and deleted."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.web import WebProcess

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = schemathesis.openapi.from_dict(json.loads((ROOT / "frontend" / "openapi.json").read_text()))
INFERENCE = "^/(v1/|tokenize|detokenize)"
KEPT = "^/v1/(responses|files|batches|models)"  # what a later operation can name
# What would end the session, the owner's rights, the tenant or the host.
FATAL = "^/api/session|^/api/password|/membership$|/members/|/service$|/base-model$|^/api/operator/tenants/{tenant}"
SEQUENCES, STEPS = 100, 6


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000)


def run(schema: Any, web: WebProcess, headers: dict[str, str], cookies: dict[str, str]) -> int:
    """Returns how many answers were no refusals."""
    succeeded, problems = 0, []
    # What is generated for the credentials themselves has had its turn in test_schema_fuzz.
    schema.config.generation.update(with_security_parameters=False)

    class Sequence(schema.as_state_machine()):  # type: ignore[misc]
        def before_call(self, case: Any) -> None:
            for name in ("tenant", "slug"):
                if name in (case.path_parameters or {}):
                    case.path_parameters[name] = "acme"
            if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
                case.body["model"] = "support"

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"base_url": web.url, "headers": headers, "cookies": cookies, "timeout": 30}

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            nonlocal succeeded
            succeeded += response.status_code < 300
            text = response.content[:400].decode(errors="replace")
            told = f"{response.status_code} {case.method} {case.formatted_path} {case.body!r}: {text}"
            broke = response.status_code >= 500 and '"engine_unavailable"' not in text
            if broke or str(response.status_code) not in case.operation.definition.raw["responses"]:
                problems.append(told)

    options = settings(
        max_examples=SEQUENCES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
    )
    # Batches go on by themselves, so the same steps may be answered otherwise the next time.
    with suppress(FlakyStrategyDefinition):
        run_state_machine_as_test(Sequence, settings=options)
    assert not problems, problems[:3]
    return succeeded


def test_the_console_s_operations_by_session(web: WebProcess) -> None:
    console = Console(web, web.tenants["acme"])
    schema = SCHEMA.exclude(path_regex=f"{INFERENCE}|{FATAL}")
    headers = {"X-CSRFToken": console.http.headers["X-CSRFToken"]}
    assert run(schema, web, headers, dict(console.http.cookies)) > SEQUENCES
    assert console.http.get("/api/tenants/acme/keys").status_code == 200  # the session lives


def test_the_console_s_operations_by_key(web: WebProcess) -> None:
    schema = SCHEMA.exclude(path_regex=f"{INFERENCE}|{FATAL}")
    assert run(schema, web, web.tenants["acme"].bearer, {})  # most of them are a session's only


def test_what_inference_keeps_by_key(web: WebProcess) -> None:
    assert run(SCHEMA.include(path_regex=KEPT), web, web.tenants["acme"].bearer, {}) > SEQUENCES / 4
