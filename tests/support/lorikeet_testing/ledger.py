"""Ledger rows for tests: one as a request ends, or millions made by the database itself, spread over 90 days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from django.db import connection

from control_plane.billing.usage.actions import Ended, record_events

FIRST_DAY = date(2026, 2, 1)
DAYS = 90
SECONDS = DAYS * 86_400
COLUMNS = (
    "request_id, tenant_id, adapter_id, version_id, api_key_id, model, endpoint, streamed, host, prompt_tokens,"
    " cached_prompt_tokens, completion_tokens, outcome, error_code, queue_ms, adapter_load_ms, first_token_ms,"
    " prefill_ms, decode_ms, preemptions, device_us, created_at"
)


def fill(
    count: int, prefix: str, tenant: Any, version: Any = None, api_key: Any = None, bases: Sequence[int] = ()
) -> None:
    """Insert `count` rows of one tenant with request ids that begin with `prefix`, on these base models by turns."""
    # In the order of time as a ledger is, but for one row in a thousand, which comes late.
    second = f"CASE WHEN i %% 1000 = 0 THEN i * 7919 %% {SECONDS} ELSE i * {SECONDS} / {count + 1} END"
    postgres = connection.vendor == "postgresql"
    if postgres:
        numbers = "SELECT i FROM generate_series(1::bigint, %s) i"
        moment = f"timestamptz '{FIRST_DAY} 00:00+00' + ({second}) * interval '1 second'"
        uuid, false = "%s::uuid", "false"
    else:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %s) SELECT i FROM n"
        moment = f"datetime('{FIRST_DAY}', '+' || ({second}) || ' seconds')"
        uuid, false = "%s", "0"
    cases = " ".join(f"WHEN {number} THEN {pk}" for number, pk in enumerate(bases))
    base = f"CASE i %% {len(bases)} {cases} END" if bases else "NULL"
    owner = [tenant, version and version.adapter, version, api_key]
    ids = [row and (str(row.pk) if postgres else row.pk.hex) for row in owner]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO usage_usageevent ({COLUMNS}, base_model_id)"
            f" SELECT %s || i, {uuid}, {uuid}, {uuid}, {uuid}, 'm',"
            f" 'completions', {false}, 'h', i %% 3000 + 100, i %% 100, i %% 500,"
            " CASE WHEN i %% 20 = 0 THEN 'aborted' ELSE 'finished' END, '', i %% 70, i %% 9, i %% 4000, i %% 300,"
            f" i %% 30000, 0, i %% 100000, {moment}, {base} FROM ({numbers}) numbers",
            [prefix, *ids, count],
        )


def record_event(**ended: Any) -> bool:
    """`record_events` for one, with the fields of `Ended`. Whether it was new."""
    return record_events([Ended(**ended)]) == 1
