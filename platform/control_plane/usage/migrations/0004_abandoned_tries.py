from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0003_overall_rollups"),
    ]

    operations = [
        migrations.CreateModel(
            name="AbandonedTry",
            fields=[
                ("engine_id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "indexes": [models.Index(fields=["created_at"], name="usage_abandoned_by_age")],
            },
        ),
    ]
