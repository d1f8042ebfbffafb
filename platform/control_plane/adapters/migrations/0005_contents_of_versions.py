"""A row for all content that is in the store, and a time from which what is archived already is kept."""

from typing import Any

from django.db import migrations
from django.db.models import OuterRef, Subquery
from django.utils import timezone


def note_contents(apps: Any, schema_editor: Any) -> None:
    versions = apps.get_model("adapters", "AdapterVersion").objects
    content, adapter = apps.get_model("adapters", "Content"), apps.get_model("adapters", "Adapter")
    now = timezone.now()
    digests = versions.order_by().values_list("digest", flat=True).distinct()
    rows = (content(digest=digest, touched_at=now) for digest in digests.iterator())
    content.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
    of_adapter = adapter.objects.filter(pk=OuterRef("adapter")).values("archived_at")
    versions.filter(state="archived", archived_at=None).update(archived_at=Subquery(of_adapter))


class Migration(migrations.Migration):
    dependencies = [("adapters", "0004_content")]

    operations = [migrations.RunPython(note_contents, migrations.RunPython.noop)]
