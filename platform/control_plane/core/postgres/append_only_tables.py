"""Indexes and settings in PostgreSQL of tables to which rows are only added, in the order of time: usage and audit."""

from __future__ import annotations

from typing import Any

from django.db import migrations

_STATEMENTS = (
    # An index by time of a few kB for a gigabyte: the table's other indexes begin with the tenant.
    "CREATE INDEX {table}_created_brin ON {table} USING brin (created_at) WITH (autosummarize = true)",
    # A share of the table as by default would be millions of dead rows after an archived month.
    "ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02)",
)
_UNDO = (
    "ALTER TABLE {table} RESET (autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor)",
    "DROP INDEX {table}_created_brin",
)


def index_by_time(table: str) -> migrations.RunPython:
    """Return the operation of an initial migration that indexes ``table`` by ``created_at``, and vacuums it more often.

    It does nothing on other databases than PostgreSQL, which is why a model's ``Meta`` cannot describe it.
    """

    def execute(statements: tuple[str, ...], schema_editor: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            for statement in statements:
                schema_editor.execute(statement.format(table=table))

    return migrations.RunPython(
        lambda apps, schema_editor: execute(_STATEMENTS, schema_editor),
        lambda apps, schema_editor: execute(_UNDO, schema_editor),
    )
