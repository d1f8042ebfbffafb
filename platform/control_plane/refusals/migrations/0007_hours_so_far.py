"""Hours begin with what the rows by minute still tell."""

from typing import Any

from django.db import migrations
from django.db.models import Sum

from control_plane.usage.time_series import EpochMinute

_BATCH = 2000


def add_up(apps: Any, schema_editor: Any) -> None:
    rows = apps.get_model("refusals", "Refusal").objects.order_by()
    hours = rows.annotate(start=EpochMinute("minute") / 60 * 60).values_list("tenant_id", "start", "status", "code")
    model = apps.get_model("refusals", "HourlyRefusals")
    found = (
        model(tenant_id=tenant, start=start, status=status, code=code, count=count)
        for tenant, start, status, code, count in hours.annotate(Sum("count")).iterator()
    )
    model.objects.bulk_create(found, batch_size=_BATCH)


class Migration(migrations.Migration):
    dependencies = [("refusals", "0006_hours")]

    operations = [migrations.RunPython(add_up, migrations.RunPython.noop)]
