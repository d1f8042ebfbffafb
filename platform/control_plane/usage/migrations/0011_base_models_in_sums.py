from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Sum
from django.db.models.functions import Coalesce

SUMMED = (
    "requests", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "device_us", "queue_ms",
    "adapter_load_ms",
)  # fmt: skip


def take_apart(apps: Any, schema_editor: Any) -> None:
    """Where the ledger says base models already, these sums do not yet: the days' are made of those that do, and the
    aggregator makes the series again. Elsewhere everything goes on as of no known base model."""
    if not apps.get_model("usage", "Series").objects.filter(base_model__isnull=False).exists():
        return
    marks = apps.get_model("usage", "Watermark").objects
    marks.select_for_update().first()  # no aggregator meanwhile
    days, totals, overall = (apps.get_model("usage", name) for name in ("DailyUsage", "DailyTotals", "OverallTotals"))
    of_series = {"outcome": "series__outcome", "batch": "series__batch", "base_id": Coalesce("series__base_model", 0)}
    for model, rows, apart in (
        (totals, days, {"tenant_id": "tenant_id", "start": "start", **of_series}),
        (overall, totals, {name: name for name in ("start", "outcome", "batch", "base_id")}),
    ):
        model.objects.all().delete()
        sums = (
            rows.objects.order_by()
            .values_list(*apart.values())
            .annotate(**{f"of_{name}": Sum(name) for name in SUMMED})
        )
        found = (model(**dict(zip((*apart, *SUMMED), row, strict=True))) for row in sums.iterator(chunk_size=5000))
        model.objects.bulk_create(found, batch_size=5000)
    for name in ("MinuteSums", "HourSums", "DaySums"):
        apps.get_model("usage", name).objects.all().delete()
    marks.update(series_event_id=0)


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0012_pins"),
        ("usage", "0010_base_models"),
    ]

    operations = [
        migrations.AddField(
            model_name="timeseries",
            name="base_model",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="fleet.basemodel",
            ),
        ),
        migrations.RemoveConstraint(
            model_name="dailytotals",
            name="usage_totals_once_per_tenant_and_day",
        ),
        migrations.RemoveConstraint(
            model_name="overalltotals",
            name="usage_overall_once_per_day",
        ),
        migrations.AddField(
            model_name="dailytotals",
            name="base_id",
            field=models.PositiveBigIntegerField(db_default=0, default=0, help_text="Of `BaseModel`; 0 = not known."),
        ),
        migrations.AddField(
            model_name="overalltotals",
            name="base_id",
            field=models.PositiveBigIntegerField(db_default=0, default=0, help_text="Of `BaseModel`; 0 = not known."),
        ),
        migrations.AddConstraint(
            model_name="dailytotals",
            constraint=models.UniqueConstraint(
                fields=("tenant", "start", "outcome", "batch", "base_id"), name="usage_totals_once_per_tenant_and_day"
            ),
        ),
        migrations.AddConstraint(
            model_name="overalltotals",
            constraint=models.UniqueConstraint(
                fields=("start", "outcome", "batch", "base_id"), name="usage_overall_once_per_day"
            ),
        ),
        migrations.RunPython(take_apart, migrations.RunPython.noop),
    ]
