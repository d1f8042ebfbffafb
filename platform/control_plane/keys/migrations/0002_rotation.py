from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("keys", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="previous_hash",
            field=models.CharField(blank=True, default="", db_default="", max_length=64),
        ),
        migrations.AddField(
            model_name="apikey",
            name="previous_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="apikey",
            name="rotated_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
