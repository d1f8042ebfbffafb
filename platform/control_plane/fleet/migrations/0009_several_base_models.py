from typing import Any

from django.core.management.color import no_style
from django.db import migrations, models
from django.db.models import Q


def go_on_counting(apps: Any, schema_editor: Any) -> None:
    """The one row there was had its key given, which PostgreSQL's sequence has not seen."""
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), [apps.get_model("fleet", "BaseModel")]):
            cursor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0008_joining")]

    operations = [
        migrations.AlterModelOptions(name="basemodel", options={"ordering": ["pk"]}),
        migrations.AddField(
            model_name="basemodel",
            name="withdrawn_at",
            field=models.DateTimeField(blank=True, help_text="Since then it is not served.", null=True),
        ),
        migrations.AlterField(
            model_name="basemodel",
            name="digest",
            field=models.CharField(help_text="Of its configuration and weights.", max_length=71, unique=True),
        ),
        migrations.AddConstraint(
            model_name="basemodel",
            constraint=models.UniqueConstraint(
                condition=Q(("withdrawn_at__isnull", True)), fields=("name",), name="base_model_name_once"
            ),
        ),
        migrations.RunPython(go_on_counting, migrations.RunPython.noop),
    ]
