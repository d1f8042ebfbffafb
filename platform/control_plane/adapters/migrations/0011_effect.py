from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("adapters", "0010_imports"),
    ]

    operations = [
        migrations.AddField(
            model_name="adapterversion",
            name="effect",
            field=models.JSONField(
                blank=True,
                help_text="What it did when a host tried it, as `VersionEffectSerializer` says.",
                null=True,
            ),
        ),
    ]
