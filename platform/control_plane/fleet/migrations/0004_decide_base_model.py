"""An installation that runs already goes on with the base model it serves, and with the adapters that it serves."""

from collections import Counter
from typing import Any

from django.db import migrations
from django.db.models import F
from django.utils import timezone

IN_USE = ("validated", "staging", "ready", "failed")


def decide(apps: Any, schema_editor: Any) -> None:
    hosts = apps.get_model("fleet", "EngineHost").objects.filter(active=True).exclude(boot_id="").order_by("name")
    described = [host for host in hosts if host.description.get("geometry") and host.description.get("base_digest")]
    if not described:
        return
    versions = apps.get_model("adapters", "AdapterVersion").objects.filter(state__in=IN_USE)
    counts = Counter(versions.values_list("base_digest", flat=True))
    # The model that most adapters were made for; of several hosts or without adapters, the first by name.
    host = max(described, key=lambda one: counts[one.description["base_digest"]])
    description = host.description
    placed = apps.get_model("fleet", "Placement").objects.filter(
        host=host, phase="ready", boot_id=F("host__boot_id"), version__state="ready"
    )
    others = set(placed.values_list("version__base_digest", flat=True)) - {description["base_digest"]}
    apps.get_model("fleet", "BaseModel").objects.create(
        pk=1,
        name=description.get("base_model", ""),
        digest=description["base_digest"],
        text_digest=description.get("text_digest", ""),
        adapters_of=sorted(others),
        description=description,
        decided_by="lorikeet",
        decided_at=timezone.now(),
    )


class Migration(migrations.Migration):
    dependencies = [("fleet", "0003_base_model"), ("adapters", "0005_contents_of_versions")]

    operations = [migrations.RunPython(decide, migrations.RunPython.noop)]
