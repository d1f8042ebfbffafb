import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0012_pins"),
        ("prices", "0002_batches"),
    ]

    operations = [
        migrations.AddField(
            model_name="priceversion",
            name="base_model",
            field=models.ForeignKey(
                help_text="Whose it is; null = all others'.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="fleet.basemodel",
            ),
        ),
        migrations.AddField(
            model_name="priceversion",
            name="inherits",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="From its day on the base model has no list; the amounts say nothing.",
            ),
        ),
        migrations.AlterField(
            model_name="priceversion",
            name="storage_per_gb_month",
            field=models.PositiveBigIntegerField(
                help_text="Adapters: a month of 10^9 bytes. That of the installation's list counts, whatever the base model."
            ),
        ),
        migrations.AddConstraint(
            model_name="priceversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("inherits", False), ("base_model__isnull", False), _connector="OR"),
                name="price_inherits_as_base_model",
            ),
        ),
    ]
