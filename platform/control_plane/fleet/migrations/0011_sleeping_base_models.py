from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0010_placement_by_demand")]

    operations = [
        migrations.AddField(
            model_name="basemodel",
            name="sleeps_after_s",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                help_text="Seconds without a request after which it needs no host; 0 = it never sleeps.",
            ),
        ),
        migrations.AddField(
            model_name="basemodel",
            name="asked_at",
            field=models.DateTimeField(
                blank=True, help_text="Of one that may sleep: the last request for it, give or take seconds.", null=True
            ),
        ),
    ]
