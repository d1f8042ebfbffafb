"""Days begin with what the rows by minute still tell."""

from datetime import UTC
from typing import Any

from django.db import migrations
from django.db.models import Sum
from django.db.models.functions import TruncDate


def add_up(apps: Any, schema_editor: Any) -> None:
    rows = apps.get_model("refusals", "Refusal").objects.order_by()
    days = rows.annotate(day=TruncDate("minute", tzinfo=UTC)).values_list("tenant_id", "day").annotate(Sum("count"))
    model = apps.get_model("refusals", "DailyRefusals")
    model.objects.bulk_create([model(tenant_id=tenant, start=day, count=count) for tenant, day, count in days])


class Migration(migrations.Migration):
    dependencies = [("refusals", "0002_daily")]

    operations = [migrations.RunPython(add_up, migrations.RunPython.noop)]
