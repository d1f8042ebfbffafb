"""An index by time that is a few kB for a gigabyte, and autovacuum that follows a table of many million rows.

PostgreSQL only: rows are in the order of time, so the index finds a month, and the table's other indexes begin with the
tenant. It is built while requests are recorded.
"""

from collections.abc import Callable
from typing import Any

from django.db import migrations

STATEMENTS = (
    # What an interrupted build left is not valid.
    "DROP INDEX CONCURRENTLY IF EXISTS {table}_created_brin",
    "CREATE INDEX CONCURRENTLY {table}_created_brin ON {table} USING brin (created_at) WITH (autosummarize)",
    # A share of the table as by default would be millions of dead rows after an archived month.
    "ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02)",
)
UNDO = (
    "DROP INDEX IF EXISTS {table}_created_brin",
    "ALTER TABLE {table} RESET (autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor)",
)


def run(statements: tuple[str, ...]) -> Callable[[Any, Any], None]:
    def execute(apps: Any, schema_editor: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            for statement in statements:
                schema_editor.execute(statement.format(table="audit_auditevent"))

    return execute


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("audit", "0001_initial")]

    operations = [migrations.RunPython(run(STATEMENTS), run(UNDO))]
