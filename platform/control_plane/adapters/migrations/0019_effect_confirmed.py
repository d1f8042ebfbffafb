from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("adapters", "0018_pins"),
    ]

    operations = [
        migrations.AddField(
            model_name="adapterversion",
            name="effect_confirmed_at",
            field=models.DateTimeField(
                blank=True, help_text="When somebody said that it may be live although it is flagged.", null=True
            ),
        ),
    ]
