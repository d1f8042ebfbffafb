"""Health checks: `/livez` (the process answers), `/readyz` (so do its servers), `/readyz/inference` (inference works).

Inference continues for a while without the database and without Redis. A balancer should probe `/readyz/inference`:
with `/readyz` an outage of a shared server would take every web process out of service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse

from control_plane.core import drain, redis_client
from control_plane.core.config import current
from control_plane.core.db import outage_s, run_db, was_reached
from control_plane.core.http.access import public
from control_plane.core.http.errors import error_body, error_response, read_only
from control_plane.core.secrets.checks import problems

CHECK_WITHIN_S = 1.5  # for each server


@public
@read_only
async def health(request: HttpRequest) -> HttpResponse:
    """Answer `/health` and `/ping`, as vLLM, LoRAX and SageMaker do: 200 without a body, or 503."""
    inference = await readyz_inference(request)
    return HttpResponse() if inference.status_code == 200 else inference


@public
@read_only
def livez(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "alive"})


@public
@read_only
async def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 while the database and Redis answer; else 503, with the servers that do not."""
    if drain.is_draining():
        return _draining()
    checks = {"database": _check_database()}
    if current().redis_url:
        checks["redis"] = redis_client.check()
    parts = dict(zip(checks, await asyncio.gather(*map(_problem, checks.values())), strict=True))
    missing = {part: problem for part, problem in parts.items() if problem}
    if not missing and (mismatch := await _secret_mismatch()):
        return mismatch
    if not missing:
        return JsonResponse({"status": "ready", "parts": dict.fromkeys(parts, "ok")})
    body = error_body(
        f"{next(iter(missing))}_unavailable",
        " ".join(f"No answer from the {part}: {problem}." for part, problem in missing.items()),
        "Check that it runs, LORIKEET_DATABASE_URL and LORIKEET_REDIS_URL, and that `manage.py migrate` has been run. "
        "Inference may go on meanwhile: /readyz/inference.",
    )
    return JsonResponse({**body, "parts": {part: problem or "ok" for part, problem in parts.items()}}, status=503)


@public
@read_only
async def readyz_inference(request: HttpRequest) -> JsonResponse:
    """Answer 200 while this process can serve inference for keys that it has seen recently."""
    if drain.is_draining():
        return _draining()
    if not was_reached() and (problem := await _problem(_check_database())):
        return error_response(
            503,
            "database_unavailable",
            f"This process has not reached the database yet: {problem}.",
            "Check that it runs, and LORIKEET_DATABASE_URL.",
        )
    away_s, grace_s = outage_s(), current().database_grace_s
    if not away_s and (mismatch := await _secret_mismatch()):
        return mismatch
    if away_s > grace_s:
        return error_response(
            503,
            "database_unavailable",
            f"The database has not answered for {away_s:.0f} s; keys are remembered for {grace_s} s.",
            "Bring the database back; the process recovers by itself then.",
        )
    return JsonResponse({"status": "ready", "database_away_s": round(away_s, 1)})


async def _secret_mismatch() -> JsonResponse | None:
    """Return an answer if this process has secrets of another installation; every key would get 401 from it."""
    try:
        async with asyncio.timeout(CHECK_WITHIN_S):
            mismatches = await run_db(problems)
    except (TimeoutError, DatabaseError, InterfaceError):
        return None
    return error_response(503, "secret_mismatch", mismatches[0].message, mismatches[0].fix) if mismatches else None


def _draining() -> JsonResponse:
    return error_response(503, "draining", "This process is about to stop.", "Send requests to another one.")


async def _problem(check: Awaitable[object]) -> str:
    """Return a short description of the failure; "" if there is none."""
    try:
        async with asyncio.timeout(CHECK_WITHIN_S):
            await check
    except TimeoutError:
        return f"not within {CHECK_WITHIN_S} s"
    except Exception as error:
        return type(error).__name__
    return ""


async def _check_database() -> None:
    await run_db(_read_migrations)


def _read_migrations() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM django_migrations LIMIT 1")
