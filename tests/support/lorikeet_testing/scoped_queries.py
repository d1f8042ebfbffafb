"""Finds queries of tenants' tables that name no tenant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

OWNED = {
    "registry_adapter", "registry_adapterversion", "registry_alias", "uploads_upload", "usage_usageevent",
    "audit_auditevent", "keys_apikey", "usage_hourlyusage", "usage_dailyusage", "usage_dailytotals",
    "usage_dailylatency", "usage_storageday", "webhooks_endpoint", "webhooks_event", "reports_export",
    "reports_exportschedule", "tenants_invitation", "tenants_membership", "limits_limitset", "quotas_budget",
    "slo_objective",
}  # fmt: skip


@contextmanager
def only_scoped_queries() -> Iterator[list[str]]:
    """Fails on SELECT, UPDATE or DELETE of a tenant's table that does not name a tenant or one row by its key."""
    unscoped: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        main = re.match(r'\s*(?:SELECT .*? FROM|UPDATE|DELETE FROM) "(\w+)"', sql, re.DOTALL)
        if main and main[1] in OWNED:
            where = sql.partition(" WHERE ")[2]
            by_slug = '"tenants_tenant"."slug" =' in where
            by_key = (f'"{main[1]}"."id" =', f'"{main[1]}"."id" IN (%s)', '."prefix" =')
            cleared = '_id" = NULL WHERE' in sql  # references to a row that was deleted
            if "tenant_id" not in where and not by_slug and not cleared and not any(one in where for one in by_key):
                unscoped.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        yield unscoped
