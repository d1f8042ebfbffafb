"""Price lists of the installation, and of base models that have their own. A version is never changed: a new one
replaces it from its first day on."""

from django.core.validators import MinLengthValidator
from django.db import models
from django.db.models import Q

from control_plane.core.columns import account_column
from control_plane.fleet.base_models.models import BaseModel
from control_plane.identity.tenants.append_only import AppendOnlyModel, AppendOnlyQuerySet

# Largest price, in millionths for a million tokens: $1000. With it no sum of a report overflows 64 bits.
HIGHEST = 1_000_000_000


class PriceVersion(AppendOnlyModel):
    """A version of a price list. Amounts are whole millionths of the currency: 150000 for a million tokens is 0.15."""

    number = models.PositiveIntegerField(unique=True)
    base_model = models.ForeignKey(
        BaseModel,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Base model of the list; null: the list of all base models without their own.",
    )
    inherits = models.BooleanField(
        default=False,
        db_default=False,
        help_text="True: from `effective_on` the base model has no list of its own; amounts are unused.",
    )
    effective_on = models.DateField(
        help_text="First day (UTC) of the prices; of two versions for a day the higher number applies."
    )
    currency = models.CharField(max_length=3, validators=[MinLengthValidator(3)])
    input_per_million = models.PositiveBigIntegerField()
    cached_input_per_million = models.PositiveBigIntegerField(
        help_text="Price of a million prompt tokens from the prefix cache, in millionths of the currency."
    )
    output_per_million = models.PositiveBigIntegerField()
    storage_per_gb_month = models.PositiveBigIntegerField(
        help_text="Millionths of the currency for 10^9 bytes of adapters a month; only the installation's list applies."
    )
    batch_input_per_million = models.PositiveBigIntegerField(
        null=True,
        help_text="Millionths of the currency for a million prompt tokens in batches; null: as outside batches.",
    )
    batch_cached_input_per_million = models.PositiveBigIntegerField(
        null=True,
        help_text="Millionths of the currency for a million cached prompt tokens in batches; null: as outside batches.",
    )
    batch_output_per_million = models.PositiveBigIntegerField(
        null=True,
        help_text="Millionths of the currency for a million output tokens in batches; null: as outside batches.",
    )
    created_by = account_column("published the prices")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AppendOnlyQuerySet["PriceVersion"].as_manager()

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    input_per_million__lte=HIGHEST,
                    cached_input_per_million__lte=HIGHEST,
                    output_per_million__lte=HIGHEST,
                    storage_per_gb_month__lte=HIGHEST,
                ),
                name="price_within_reason",
            ),
            models.CheckConstraint(
                # The check is separate, as a comparison with null is neither true nor false.
                condition=Q(
                    batch_input_per_million__lte=HIGHEST,
                    batch_cached_input_per_million__lte=HIGHEST,
                    batch_output_per_million__lte=HIGHEST,
                ),
                name="batch_price_within_reason",
            ),
            models.CheckConstraint(
                condition=Q(inherits=False) | Q(base_model__isnull=False), name="price_inherits_as_base_model"
            ),
        ]

    def __str__(self) -> str:
        return f"prices v{self.number}"

    def per_million(self, kind: str, *, batch: bool) -> int:
        """Return the price of a million "input", "cached_input" or "output" tokens."""
        of_batches: int | None = getattr(self, f"batch_{kind}_per_million") if batch else None
        ordinary: int = getattr(self, f"{kind}_per_million")
        return ordinary if of_batches is None else of_batches
