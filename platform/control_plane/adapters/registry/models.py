"""Adapters are names of a tenant; versions are content that never changes; aliases point names at versions."""

import re
import uuid
from typing import Any

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from control_plane.core.columns import account_column
from control_plane.identity.tenants.models import Tenant, TenantQuerySet

NAME_FORM = re.compile(r"^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?\Z")
NAME = RegexValidator(
    NAME_FORM.pattern,
    "Use 1-64 lower-case letters, digits, dots, hyphens and underscores, starting and ending with a letter or digit.",
)
LIVE = "live"


class Adapter(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="adapters")
    name = models.CharField(max_length=64, validators=[NAME])
    description = models.CharField(max_length=500, blank=True)
    created_by = account_column("uploaded the first version", otherwise="an API key did")
    created_at = models.DateTimeField(auto_now_add=True)
    archived_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the adapter was archived; null: it is not archived."
    )
    deleted_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the adapter was deleted for good; null: it was not deleted."
    )
    pinned_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time since which the live version is pinned in the device memory of its hosts; null: not pinned.",
    )
    promotion_rule = models.JSONField(
        null=True,
        blank=True,
        help_text="Score that a version needs to become live, with the fields of `PromotionRuleSerializer`; "
        "null: none.",
    )

    objects = TenantQuerySet["Adapter"].as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"], condition=Q(archived_at__isnull=True), name="adapter_name_once_per_tenant"
            )
        ]

    def __str__(self) -> str:
        return self.name


class VersionState(models.TextChoices):
    VALIDATED = "validated"
    STAGING = "staging"
    READY = "ready"
    FAILED = "failed"
    ARCHIVED = "archived"
    DELETED = "deleted"


class EffectVerdict(models.TextChoices):
    """The result of a host's trial of a version."""

    ACTS = "acts"
    CHANGES_NOTHING = "changes_nothing"
    OVERFLOWS = "overflows"


class AgreementOutcome(models.TextChoices):
    """The result of comparing a version on a host with a quantised base to the unquantised base."""

    PENDING = "pending"
    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_MEASURED = "not_measured"


class EffectFlag(models.TextChoices):
    """The reason why a member must confirm that a version may be live."""

    OVERFLOWS = "overflows"  # in a host's trial, or in a request
    CHANGES_NOTHING = "changes_nothing"
    DIFFERS = "differs"  # from the version on the unquantised base


class EvaluationMetric(models.TextChoices):
    """The score of one answer against the expected text; a set's score is the mean over its items."""

    EXACT = "exact"  # 1 if it is the expected text, white space around either ignored
    CONTAINS = "contains"  # 1 if it contains the expected text
    LOGPROB = "logprob"  # mean natural log-probability of the expected text's tokens after the prompt


class AdapterDtype(models.TextChoices):
    """The dtype in which hosts started with `--adapter-dtype fp8` serve a version. Other hosts never use FP8."""

    AUTO = "auto"  # FP8 where the host finds that its answers agree
    BF16 = "bf16"  # the dtype of the host's model
    FP8 = "fp8"  # also where they do not agree


class DtypeOutcome(models.TextChoices):
    """The result of a host's comparison of a version in FP8 with itself in the dtype of its model."""

    PENDING = "pending"
    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_MEASURED = "not_measured"


# States of versions that cannot be called, are on no host, and count against no limit.
OUT_OF_USE = (VersionState.ARCHIVED, VersionState.DELETED)


class ImmutableVersionError(RuntimeError):
    """An attempt to change the content of a version. Only its state changes."""


class AdapterVersion(models.Model):
    """Immutable content, identified by its digest; only `state` and the fields of `MUTABLE` change."""

    MUTABLE = frozenset(
        {
            *("state", "error", "ready_at", "archived_at", "overflowed_at"),
            *("base_confirmed_at", "effect", "effect_confirmed_at", "evaluations", "adapter_dtype"),
        }
    )

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="adapter_versions")
    adapter = models.ForeignKey(Adapter, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    digest = models.CharField(max_length=71, db_index=True, help_text='"sha256:" and 64 hex digits over both files.')
    file_digests = models.JSONField(help_text='File name -> "sha256:<hex>".')
    state = models.CharField(max_length=16, choices=VersionState.choices, default=VersionState.VALIDATED)
    error = models.JSONField(
        null=True,
        blank=True,
        help_text="{code, message, fix}: the reason why the version failed; null: it has not failed, or is "
        "staged again.",
    )
    rank = models.PositiveIntegerField()
    targets = models.JSONField()
    dtype = models.CharField(max_length=16)
    bytes = models.PositiveBigIntegerField(help_text="Size of both files.")
    num_parameters = models.PositiveBigIntegerField()
    base_model = models.CharField(max_length=200, help_text="Base model for which the version was validated.")
    base_digest = models.CharField(max_length=71)
    named_base = models.CharField(
        max_length=200,
        blank=True,
        db_default="",
        default="",
        help_text="Base model that the adapter's configuration names, if it is another one; empty: it is none "
        "or the same.",
    )
    base_confirmed_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which a person confirmed that the base model fits; null: nobody did."
    )
    report = models.JSONField()
    chat_template = models.JSONField(
        null=True,
        blank=True,
        help_text="Chat template of the version, with the fields of `ChatTemplateSerializer`; null: the base model's.",
    )
    chat_template_digest = models.CharField(max_length=71, blank=True, db_default="", default="")
    created_by = account_column("uploaded the version", otherwise="an API key did")
    created_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the version last became ready; null: it never did."
    )
    archived_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the version was archived or deleted; null: it is in use."
    )
    overflowed_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which a request with the version first ended because numbers overflowed; null: never.",
    )

    effect = models.JSONField(
        null=True,
        blank=True,
        help_text="Effect that a host measured, with the fields of `VersionEffectSerializer`; null: none has yet.",
    )
    effect_confirmed_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which a person confirmed that the flagged version may become live; null: nobody did.",
    )
    adapter_dtype = models.CharField(
        max_length=8, choices=AdapterDtype.choices, default=AdapterDtype.AUTO, db_default=AdapterDtype.AUTO
    )
    evaluations = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="Last result of each evaluation set, with the fields of `ScoreSerializer`.",
    )

    objects = TenantQuerySet["AdapterVersion"].as_manager()

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["adapter", "number"], name="version_number_once"),
            models.UniqueConstraint(
                fields=["adapter", "digest", "base_digest", "chat_template_digest"],
                condition=~Q(state=VersionState.DELETED),
                name="version_content_once_per_adapter",
            ),
            models.CheckConstraint(condition=Q(number__gte=1), name="version_number_from_one"),
            models.CheckConstraint(condition=Q(digest__startswith="sha256:"), name="version_digest_is_sha256"),
            models.CheckConstraint(condition=Q(state__in=VersionState.values), name="version_state_known"),
            models.CheckConstraint(condition=Q(adapter_dtype__in=AdapterDtype.values), name="version_dtype_known"),
        ]

    def __str__(self) -> str:
        return f"{self.adapter_id}@v{self.number}"

    @property
    def asks_for_base(self) -> bool:
        """True while a member must confirm that it was trained on the served base."""
        return bool(self.named_base) and self.base_confirmed_at is None

    @property
    def verdict(self) -> str | None:
        """Result of the first trial on a host, None before it."""
        return self.effect["verdict"] if self.effect else None

    @property
    def agreement(self) -> str | None:
        """Agreement of answers with the unquantised base's; None before a trial and where the base is not quantised."""
        result = (self.effect or {}).get("agreement")
        return result["outcome"] if result else None

    @property
    def flag(self) -> EffectFlag | None:
        """Reason against the version, from its trial on a host or a request that overflowed; None without any."""
        if self.verdict == EffectVerdict.OVERFLOWS or self.overflowed_at is not None:
            return EffectFlag.OVERFLOWS
        if self.verdict == EffectVerdict.CHANGES_NOTHING:
            return EffectFlag.CHANGES_NOTHING
        return EffectFlag.DIFFERS if self.agreement == AgreementOutcome.DIFFERS else None

    @property
    def may_answer_first(self) -> bool:
        """True if no flag keeps it from becoming live automatically as the first. A version without effect may."""
        return not self.asks_for_effect or self.flag == EffectFlag.CHANGES_NOTHING

    @property
    def asks_for_effect(self) -> bool:
        """True while a member must confirm that it may be live despite its flag."""
        return self.flag is not None and self.effect_confirmed_at is None

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding and not set(kwargs.get("update_fields") or ["*"]) <= self.MUTABLE:
            raise ImmutableVersionError(f"Save a version with update_fields within {sorted(self.MUTABLE)}.")
        super().save(*args, **kwargs)


class Alias(models.Model):
    """A movable name for a version. The bare adapter name means the alias `live`."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="aliases")
    adapter = models.ForeignKey(Adapter, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=64, validators=[NAME])
    version = models.ForeignKey(AdapterVersion, on_delete=models.PROTECT, related_name="aliases")
    # Time at which the alias was last given a version: changes of the canary are saved without it.
    updated_at = models.DateTimeField(auto_now=True)
    previous = models.ForeignKey(
        AdapterVersion,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Version that the alias named before, to which a rollback leads; null: none, or it was deleted.",
    )
    canary = models.ForeignKey(
        AdapterVersion,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="canary_of",
        help_text="Version that answers a part of the alias's requests; null: there is no canary.",
    )
    canary_percent = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="Share of the alias's requests that the canary answers, in per cent; null: there is no canary.",
    )
    canary_since = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the canary began; null: there is no canary."
    )
    rolled_back = models.JSONField(
        null=True,
        blank=True,
        help_text="{version, at, code, message}: the last canary that its figures ended; null: none, or a later"
        " one began.",
    )

    objects = TenantQuerySet["Alias"].as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["adapter", "name"], name="alias_once_per_adapter"),
            # "support@v7" must mean version 7 and never an alias.
            models.CheckConstraint(condition=~Q(name__regex=r"^v[0-9]+$"), name="alias_is_not_a_version_number"),
            models.CheckConstraint(
                condition=Q(canary=None, canary_percent=None) | Q(canary_percent__gte=1, canary_percent__lte=99),
                name="alias_canary_takes_a_part",
            ),
        ]

    def __str__(self) -> str:
        return self.name
