from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("webhooks", "0004_budget_alert"),
    ]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="type",
            field=models.CharField(
                choices=[
                    ("upload.accepted", "Upload Accepted"),
                    ("upload.refused", "Upload Refused"),
                    ("version.ready", "Version Ready"),
                    ("version.failed", "Version Failed"),
                    ("version.flagged", "Version Flagged"),
                    ("version.promoted", "Version Promoted"),
                    ("canary.failed", "Canary Failed"),
                    ("adapter.archived", "Adapter Archived"),
                    ("quota.warning", "Quota Warning"),
                    ("quota.exhausted", "Quota Exhausted"),
                    ("budget.alert", "Budget Alert"),
                    ("export.ready", "Export Ready"),
                    ("test", "Test"),
                ],
                max_length=32,
            ),
        ),
    ]
