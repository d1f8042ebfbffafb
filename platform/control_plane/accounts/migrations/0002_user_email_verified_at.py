"""Accounts that exist were made by whoever runs the installation, for the people they belong to."""

from typing import Any

from django.db import migrations, models


def trust_existing(apps: Any, schema_editor: Any) -> None:
    apps.get_model("accounts", "User").objects.update(email_verified_at=models.F("created_at"))


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="user",
            name="email_verified_at",
            field=models.DateTimeField(null=True, help_text="When it was proven that the address is theirs."),
        ),
        migrations.RunPython(trust_existing, migrations.RunPython.noop),
    ]
