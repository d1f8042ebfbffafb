"""JSON of adapters, versions, placements and uploads, the same in the REST API and in live events."""

from datetime import datetime, timedelta
from typing import Any

from rest_framework import serializers

from control_plane.adapters.imports.progress import fetched_bytes
from control_plane.adapters.imports.sources import BUCKET_FORM
from control_plane.adapters.registry.models import (
    NAME,
    AdapterDtype,
    AdapterVersion,
    AgreementOutcome,
    DtypeOutcome,
    EffectVerdict,
    EvaluationMetric,
    VersionState,
)
from control_plane.adapters.registry.queries import (
    LATEST_ARCHIVED,
    AdapterSort,
    AdapterStatus,
    AdapterWithVersions,
    ArchivedSort,
)
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.config import current
from control_plane.core.http.lists import MAX_ROWS, ListQuerySerializer
from control_plane.core.http.serializers import AccountField, FormField, NameField, ProblemSerializer
from control_plane.fleet.hosts.models import StagingPhase

MODEL_KINDS = ["base", "adapter"]


def kept_until(archived_at: datetime | None) -> datetime | None:
    """Return the time at which content archived at `archived_at` is deleted."""
    return archived_at + timedelta(seconds=current().archive_keep_s) if archived_at else None


# The form of tokens and credentials, for errors.
_SECRET = "the text as it was issued, without spaces and line breaks"


class DtypeReportSerializer(serializers.Serializer[Any]):
    """A host's comparison of a version in FP8 with itself in the dtype of the host's model."""

    outcome = serializers.ChoiceField(choices=DtypeOutcome.choices)
    reason = serializers.CharField(
        allow_blank=True, help_text="Reason why it is not served in FP8 with `auto`, or was not measured."
    )
    tokens = serializers.IntegerField(help_text="Number of tokens of prompts and answers that were compared.")
    agreeing = serializers.IntegerField(help_text="Number of these after which the most likely token is the same.")
    mean_distance = serializers.FloatField(help_text="Mean distance of log-probabilities, in nats.")
    largest_distance = serializers.FloatField()
    least_agreeing = serializers.FloatField(help_text="The least share of agreeing tokens with which FP8 is served.")
    most_distance = serializers.FloatField(help_text="The largest mean distance with which FP8 is served.")
    elapsed_ms = serializers.IntegerField()
    at = serializers.DateTimeField()


class PlacementSerializer(serializers.Serializer[Any]):
    host = serializers.CharField(source="host.name")
    phase = serializers.ChoiceField(choices=StagingPhase.choices)
    bytes_done = serializers.IntegerField()
    bytes_total = serializers.IntegerField()
    attempts = serializers.IntegerField()
    error = ProblemSerializer(
        allow_null=True, help_text="Error of the last failed attempt; null: none failed, or a new attempt has begun."
    )
    dtype = serializers.CharField(
        allow_blank=True,
        help_text="Number format in which the host serves the version, such as fp8 or bfloat16; empty "
        "until the host reports it.",
    )
    dtype_report = DtypeReportSerializer(
        allow_null=True, help_text="Comparison of number formats on the host; null: none was made yet."
    )
    updated_at = serializers.DateTimeField()


class ValidationProblemSerializer(ProblemSerializer):
    tensor = serializers.CharField(
        allow_null=True, help_text="Name of the tensor at fault in the file; null: the problem is not that of a tensor."
    )


class ValidationCheckSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    ok = serializers.BooleanField()
    detail = serializers.CharField()


class AdapterManifestSerializer(serializers.Serializer[Any]):
    rank = serializers.IntegerField()
    targets = serializers.ListField(child=serializers.CharField())
    dtype = serializers.CharField()
    num_tensors = serializers.IntegerField()
    num_parameters = serializers.IntegerField()
    weight_bytes = serializers.IntegerField()
    base_model_name = serializers.CharField(allow_blank=True)
    num_modules = serializers.IntegerField()
    layers = serializers.ListField(child=serializers.IntegerField())
    ranks = serializers.DictField(
        child=serializers.ListField(child=serializers.IntegerField()), help_text="Ranks by target."
    )
    scales = serializers.DictField(
        child=serializers.ListField(child=serializers.FloatField()), help_text="Scales by target."
    )


class ValidationReportSerializer(serializers.Serializer[Any]):
    """The result of a validation. `problems` is capped; `problem_count` is not."""

    ok = serializers.BooleanField()
    problems = ValidationProblemSerializer(many=True)
    problem_count = serializers.IntegerField()
    checks = ValidationCheckSerializer(many=True)
    notes = serializers.ListField(child=serializers.CharField())
    manifest = AdapterManifestSerializer(allow_null=True, help_text="Contents of the files; null: there are problems.")


class ProbedPromptSerializer(serializers.Serializer[Any]):
    """A prompt, continued by the base model and with the version. Changes are of log-probabilities."""

    prompt = serializers.CharField()
    base_tokens = serializers.ListField(child=serializers.CharField(allow_blank=True))
    adapter_tokens = serializers.ListField(child=serializers.CharField(allow_blank=True))
    largest_change = serializers.FloatField()
    mean_change = serializers.FloatField()
    finite = serializers.BooleanField(help_text="Whether the model's numbers stayed finite with the version.")


class AgreementFiguresSerializer(serializers.Serializer[Any]):
    """Served answers compared with those of the same model without its quantisation."""

    tokens = serializers.IntegerField(help_text="Number of tokens that were generated.")
    agreeing = serializers.IntegerField(
        help_text="Number of tokens that the unquantised model chooses too, behind the same text."
    )
    mean_distance = serializers.FloatField(help_text="Mean distance of log-probabilities on the prompts, in nats.")
    largest_distance = serializers.FloatField()


class PromptAgreementSerializer(serializers.Serializer[Any]):
    """The agreement on one prompt, with the tokens that the unquantised model chooses after the same text."""

    base = AgreementFiguresSerializer()
    adapter = AgreementFiguresSerializer()
    base_tokens = serializers.ListField(child=serializers.CharField(allow_blank=True))
    adapter_tokens = serializers.ListField(child=serializers.CharField(allow_blank=True))


class AgreementSerializer(serializers.Serializer[Any]):
    """The distance of a version's answers on a quantised base from those on the unquantised one, and the base's own."""

    outcome = serializers.ChoiceField(choices=AgreementOutcome.choices)
    reason = serializers.CharField(
        allow_blank=True, help_text="Reason why it differs, or why it was not measured and what to do."
    )
    dequantised = serializers.BooleanField(
        help_text="Whether dequantised weights were compared: the base's checkpoint is quantised and has no others."
    )
    base = AgreementFiguresSerializer(
        allow_null=True, help_text="Figures without the version; null until they are measured."
    )
    adapter = AgreementFiguresSerializer(
        allow_null=True, help_text="Figures with the version; null until they are measured."
    )
    prompts = PromptAgreementSerializer(
        many=True, help_text="Figures of each prompt, in the order of the effect's prompts."
    )
    layer_changes = serializers.ListField(
        child=serializers.FloatField(),
        help_text="Norm of what quantisation changes in the matrices of each layer, divided by their norm.",
    )
    elapsed_ms = serializers.IntegerField()


class VersionEffectSerializer(serializers.Serializer[Any]):
    """The effect of a version on a few prompts when the first host tried it, before it was ready."""

    verdict = serializers.ChoiceField(choices=EffectVerdict.choices)
    largest_change = serializers.FloatField(help_text="Largest change of a log-probability on all prompts.")
    tokens = serializers.IntegerField(help_text="Number of tokens that were generated with the version.")
    differing_tokens = serializers.IntegerField(help_text="Number of tokens that the base model would not choose.")
    layer_changes = serializers.ListField(
        child=serializers.FloatField(),
        help_text="Norm of what the version adds to the matrices of each layer, divided by their norm.",
    )
    prompts = ProbedPromptSerializer(many=True)
    agreement = AgreementSerializer(
        allow_null=True,
        help_text="Agreement with the unquantised base model; null where the host's base model is not quantised.",
    )
    host = serializers.CharField()
    elapsed_ms = serializers.IntegerField()
    at = serializers.DateTimeField()


class LiveScoreSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    score = serializers.FloatField()


class AnsweredItemSerializer(serializers.Serializer[Any]):
    """An item of an evaluation set; answers are null where only probabilities were requested."""

    line = serializers.IntegerField(help_text="Line of the item in the evaluation set, from 1.")
    prompt = serializers.CharField(help_text="The prompt, or its end if it is long.")
    expected = serializers.CharField()
    base = serializers.CharField(
        allow_null=True, help_text="Answer of the base model; null: only probabilities were requested."
    )
    live = serializers.CharField(
        allow_null=True,
        help_text="Answer of the live version; null: none was compared, or only probabilities were requested.",
    )
    version = serializers.CharField(
        allow_null=True, help_text="Answer of the version; null: only probabilities were requested."
    )
    score = serializers.FloatField(help_text="Score of the version's answer.")


class ScoreSerializer(serializers.Serializer[Any]):
    """A version's score on an evaluation set, with those of the base model and the live version of that time."""

    evaluation = serializers.UUIDField()
    set = serializers.CharField()
    metric = serializers.ChoiceField(choices=EvaluationMetric.choices)
    items = serializers.IntegerField()
    base = serializers.FloatField()
    live = LiveScoreSerializer(
        allow_null=True, help_text="Score of the live version; null if none was live, or this one."
    )
    score = serializers.FloatField(help_text="Mean score of the version over all items; higher is better.")
    worst = AnsweredItemSerializer(many=True, help_text="Items that the version answered worst, five at most.")
    at = serializers.DateTimeField()


class PromotionRuleSerializer(serializers.Serializer[Any]):
    """The score that a version must reach before it becomes live, or a canary of it."""

    set = serializers.CharField(help_text="Evaluation set with which new versions are evaluated automatically.")
    key = serializers.UUIDField(help_text="API key with which the requests of these evaluations are counted.")
    minimum = serializers.FloatField(
        allow_null=True, help_text="Lowest score with which a version may become live; null: any score."
    )
    not_worse_than_live = serializers.BooleanField()


class ChatTemplateSerializer(serializers.Serializer[Any]):
    """The chat template of an adapter, by which its chats are rendered."""

    source = serializers.CharField()  # type: ignore[assignment]  # DRF has an attribute of this name
    tool_source = serializers.CharField(
        allow_blank=True, help_text="Template for requests with tools, if it is another one."
    )
    special_tokens = serializers.DictField(child=serializers.CharField())


class VersionSummarySerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    digest = serializers.CharField()
    state = serializers.ChoiceField(choices=VersionState.choices)
    rank = serializers.IntegerField()
    targets = serializers.ListField(child=serializers.CharField())
    dtype = serializers.CharField()
    bytes = serializers.IntegerField()
    num_parameters = serializers.IntegerField()
    base_model = serializers.CharField()
    named_base = serializers.CharField(
        allow_blank=True, help_text="Base model that the adapter's configuration names, if it is not the one served."
    )
    asks_for_base = serializers.BooleanField(
        help_text="Whether a person has to confirm the base model before the version can become live."
    )
    created_at = serializers.DateTimeField()
    created_by = AccountField("created_by", "uploaded the version", otherwise="an API key did")
    error = ProblemSerializer(
        allow_null=True, help_text="Reason why the version failed; null: it has not failed, or is staged again."
    )
    overflowed_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time at which a request first ended with adapter_overflow: the weights are too large. Null: never.",
    )
    verdict = serializers.ChoiceField(
        choices=EffectVerdict.choices,
        allow_null=True,
        help_text="Whether the version changes answers; null until a host has measured it.",
    )
    agreement = serializers.ChoiceField(
        choices=AgreementOutcome.choices,
        allow_null=True,
        help_text="Agreement with the unquantised base model; null until a host has measured it, and where "
        "the base model is not quantised.",
    )
    asks_for_effect = serializers.BooleanField(
        help_text="Whether a person has to confirm the version before it can become live: it changes "
        "nothing, overflows, or differs on the quantised base model."
    )
    adapter_dtype = serializers.ChoiceField(
        choices=AdapterDtype.choices,
        help_text="Number format on hosts with adapters in FP8: auto (FP8 where it agrees), bf16 (never "
        "FP8) or fp8 (in any case).",
    )
    kept_until = serializers.SerializerMethodField(
        help_text="Time until which an archived version can be restored; null: it is not archived."
    )

    def get_kept_until(self, version: AdapterVersion) -> datetime | None:
        return kept_until(version.archived_at)


class AdapterDtypeSerializer(serializers.Serializer[Any]):
    adapter_dtype = serializers.ChoiceField(choices=AdapterDtype.choices)


class VersionSerializer(VersionSummarySerializer):
    adapter = serializers.CharField(source="adapter.name")
    aliases = serializers.SerializerMethodField()
    report = ValidationReportSerializer()
    chat_template = ChatTemplateSerializer(
        allow_null=True, help_text="Chat template of the version; null: the base model's."
    )
    effect = VersionEffectSerializer(allow_null=True, help_text="Effect that a host measured; null: none has yet.")
    evaluations = ScoreSerializer(many=True, help_text="The last score of each evaluation set.")
    placements = PlacementSerializer(many=True)

    def get_aliases(self, version: AdapterVersion) -> list[str]:
        return [alias.name for alias in version.aliases.all()]


class CanaryRollbackSerializer(serializers.Serializer[Any]):
    """The last canary that was ended for its figures."""

    version = serializers.IntegerField()
    at = serializers.DateTimeField()
    code = serializers.CharField()
    message = serializers.CharField()


class AliasSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    version = serializers.IntegerField(source="version.number")
    updated_at = serializers.DateTimeField(
        help_text="Time since which the alias names this version, whatever canary it had."
    )
    previous = serializers.IntegerField(
        source="previous.number",
        default=None,
        allow_null=True,
        help_text="Number of the version to which a rollback leads; null: there is none.",
    )
    canary = serializers.IntegerField(
        source="canary.number",
        default=None,
        allow_null=True,
        help_text="Number of the version that answers a part of the requests; null: there is no canary.",
    )
    canary_percent = serializers.IntegerField(
        allow_null=True,
        help_text="Share of the requests that the canary answers, in per cent; null: there is no canary.",
    )
    canary_since = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the canary began; null: there is no canary."
    )
    rolled_back = CanaryRollbackSerializer(
        allow_null=True, help_text="Last canary that its figures ended; null: none, or a later one began."
    )


class AliasTargetSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField(min_value=1)


class AdapterSummarySerializer(serializers.Serializer[Any]):
    """An adapter in a list. Rank, targets, size and base are those of the live version, else of the newest."""

    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    live_version = serializers.IntegerField(
        allow_null=True, help_text="Number of the live version; null: none is live."
    )
    versions_count = serializers.IntegerField()
    status = serializers.ChoiceField(choices=AdapterStatus.choices)
    rank = serializers.IntegerField(allow_null=True, help_text="LoRA rank; null: the adapter has no version.")
    targets = serializers.ListField(child=serializers.CharField())
    bytes = serializers.IntegerField(
        allow_null=True, help_text="Size of both files in bytes; null: the adapter has no version."
    )
    base_model = serializers.CharField(
        allow_null=True, help_text="Name that the base model had at the validation; null: the adapter has no version."
    )


class AdapterSerializer(AdapterSummarySerializer):
    versions = VersionSummarySerializer(many=True)
    aliases = AliasSerializer(many=True)
    promotion_rule = PromotionRuleSerializer(
        source="adapter.promotion_rule",
        allow_null=True,
        help_text="Score that a version needs to become live; null: there is no rule.",
    )


class ArchivedAdapterSerializer(serializers.Serializer[Any]):
    """An adapter that can be restored, with the versions that were archived with it."""

    id = serializers.UUIDField(source="adapter.pk")
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    versions_count = serializers.IntegerField()
    archived_at = serializers.DateTimeField(source="adapter.archived_at")
    kept_until = serializers.SerializerMethodField()

    def get_kept_until(self, view: AdapterWithVersions) -> datetime:
        until = kept_until(view.adapter.archived_at)
        assert until is not None
        return until


class AdapterListQuerySerializer(ListQuerySerializer):
    status = serializers.ChoiceField(
        choices=AdapterStatus.choices,
        required=False,
        default="",
        allow_blank=True,
        help_text="Status of the live version, else of the newest; staging includes validated ones.",
    )
    sort = serializers.ChoiceField(
        choices=[sign + column for column in AdapterSort.values for sign in ("", "-")],
        required=False,
        default=AdapterSort.NAME.value,
    )


class ArchivedListQuerySerializer(ListQuerySerializer):
    sort = serializers.ChoiceField(
        choices=[sign + column for column in ArchivedSort.values for sign in ("", "-")],
        required=False,
        default=LATEST_ARCHIVED,
    )


class UploadListQuerySerializer(ListQuerySerializer):
    limit = serializers.IntegerField(min_value=1, max_value=MAX_ROWS, required=False, default=50)


class AdapterStorageSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    versions = serializers.IntegerField()
    bytes = serializers.IntegerField(source="all_bytes")


class StorageSerializer(serializers.Serializer[Any]):
    """A tenant's storage. Content shared by several versions counts once, but for each adapter in the list."""

    bytes = serializers.IntegerField(help_text="Bytes of versions in use, which count against the limit.")
    limit_bytes = serializers.IntegerField(allow_null=True, help_text="Maximum of `bytes`; null: there is no limit.")
    archived_bytes = serializers.IntegerField(help_text="Bytes of versions that are archived and can be restored.")
    adapters = AdapterStorageSerializer(many=True, help_text="Adapters that take the most bytes.")
    adapter_count = serializers.IntegerField(help_text="Number of adapters with versions in use.")


class UploadedFileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    bytes = serializers.IntegerField()
    sha256 = serializers.CharField(
        default=None, allow_null=True, help_text="SHA-256 that the client announced, in hex; null: it announced none."
    )


class UploadSourceSerializer(serializers.Serializer[Any]):
    """The source of an import; for a URL without its query, and never with a token."""

    name = serializers.CharField()
    revision = serializers.CharField(
        allow_null=True,
        help_text="Branch, tag or commit of a repository of the Hub; null: the source is not on the Hub.",
    )
    commit = serializers.CharField(
        default=None,
        allow_null=True,
        help_text="Commit to which the revision pointed when the import began; null: not known yet, or not on the Hub.",
    )


class UploadSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    adapter = serializers.CharField(source="adapter_name")
    description = serializers.CharField(allow_blank=True)
    state = serializers.ChoiceField(choices=UploadState.choices)
    reason = ProblemSerializer(
        allow_null=True,
        help_text="Reason why the upload waits, was refused or cancelled, or made no new version; null: none of these.",
    )
    bytes = serializers.IntegerField()
    files = UploadedFileSerializer(many=True)
    imported_from = UploadSourceSerializer(
        source="source", allow_null=True, help_text="Source of an import; null: the client sent the files."
    )
    fetched_bytes = serializers.SerializerMethodField()
    report = ValidationReportSerializer(
        allow_null=True, help_text="Report of the validation; null: the files were not validated yet, or never."
    )
    version = serializers.IntegerField(
        source="version.number",
        default=None,
        allow_null=True,
        help_text="Number of the version with this content; null: the upload is not accepted.",
    )
    reused_version = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    created_by = AccountField("created_by", "began the upload", otherwise="an API key did")
    updated_at = serializers.DateTimeField()

    def get_fetched_bytes(self, upload: Upload) -> int | None:
        """Return the bytes fetched so far of an import in progress; null for every other upload."""
        return fetched_bytes(upload)


def _trained_for() -> NameField:
    return NameField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="Name or digest of the base model that it was trained for. Needed only where several are served, the "
        "adapter is new, and its configuration names none of them.",
    )


class NewUploadSerializer(serializers.Serializer[Any]):
    """The multipart form of a new upload."""

    name = NameField(
        max_length=64, validators=[NAME], help_text="Name of the adapter, which is created if there is none."
    )
    description = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    files = serializers.ListField(
        child=serializers.FileField(allow_empty_file=True, max_length=255),
        help_text="adapter_config.json and adapter_model.safetensors, or one .zip or .tar.gz that holds them.",
    )
    sha256 = serializers.CharField(
        max_length=8192,
        required=False,
        allow_blank=True,
        default="",
        help_text="Output of `sha256sum` for the files: an upload with other content is refused.",
    )
    base_model = _trained_for()


class NewImportSerializer(serializers.Serializer[Any]):
    name = NameField(
        max_length=64, validators=[NAME], help_text="Name of the adapter, which is created if there is none."
    )
    description = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    source = NameField(  # type: ignore[assignment]  # DRF has an attribute of this name
        max_length=4096,
        help_text="hub:org/name or hub:org/name/folder@revision, s3://bucket/folder with credentials that the tenant "
        "keeps for the bucket, or the https address of a .zip, .tar or .tar.gz.",
    )
    base_model = _trained_for()


class HubTokenSerializer(serializers.Serializer[Any]):
    set = serializers.BooleanField(read_only=True)
    token = FormField(r"^[\x21-\x7e]+\Z", form=_SECRET, max_length=500, write_only=True)


class BucketCredentialsSerializer(serializers.Serializer[Any]):
    """The credentials for a bucket. The keys are never shown."""

    bucket = FormField(
        rf"^{BUCKET_FORM}\Z",
        form="3 to 63 lower-case letters, digits, dots and hyphens",
        max_length=63,
        help_text="Name of the bucket. Credentials stored for it before are replaced.",
    )
    endpoint = serializers.CharField(
        max_length=300,
        required=False,
        allow_blank=True,
        default="",
        help_text="Address of the server; empty for Amazon S3.",
    )
    region = FormField(
        r"^[a-z0-9-]+\Z",
        form="lower-case letters, digits and hyphens",
        max_length=64,
        required=False,
        default="us-east-1",
    )
    access_key_id = FormField(r"^[\x21-\x7e]+\Z", form=_SECRET, max_length=200, write_only=True)
    secret_access_key = FormField(r"^[\x21-\x7e]+\Z", form=_SECRET, max_length=500, write_only=True)
    session_token = FormField(
        r"^[\x21-\x7e]*\Z",
        form=_SECRET,
        max_length=8000,
        required=False,
        allow_blank=True,
        default="",
        write_only=True,
        help_text="Session token of temporary credentials; empty for permanent ones.",
    )
    created_at = serializers.DateTimeField(read_only=True)


class HubFollowSerializer(serializers.Serializer[Any]):
    """A branch: whenever it moves, the adapter gets a new version."""

    id = serializers.UUIDField(read_only=True)
    name = NameField(source="adapter_name", max_length=64, validators=[NAME], help_text="Name of the adapter.")
    source = NameField(
        max_length=700, help_text="Branch to follow, as hub:org/name@branch or hub:org/name/folder@branch."
    )  # type: ignore[assignment]
    commit = serializers.CharField(read_only=True, help_text="Commit that was imported last; empty: none yet.")
    checked_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="Time of the last check of the branch; null: it was not checked yet."
    )
    problem = ProblemSerializer(
        read_only=True,
        allow_null=True,
        help_text="Reason why the last check of the branch failed, or why the import of its commit was refused or "
        "cancelled; null: neither.",
    )
    created_at = serializers.DateTimeField(read_only=True)


class HubModelSerializer(serializers.Serializer[Any]):
    """A repository that a request named, and the state of its import."""

    name = serializers.CharField()
    state = serializers.CharField(source="upload.state")
    adapter = serializers.CharField(source="upload.adapter_name")
    version = serializers.IntegerField(
        source="upload.version.number",
        default=None,
        allow_null=True,
        help_text="Number of the imported version; null: the import is not accepted.",
    )
    upload = serializers.UUIDField(source="upload_id")
    requested_at = serializers.DateTimeField()


class HubModelsSerializer(serializers.Serializer[Any]):
    """The permission for requests to name repositories of the Hub as their model."""

    enabled = serializers.BooleanField()
    organizations = serializers.ListField(
        child=FormField(
            r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z", form="an organization's name on the Hub", max_length=96
        ),
        max_length=100,
        required=False,
        default=list,
        help_text="Organisations that are allowed; empty = all.",
    )
    models = HubModelSerializer(many=True, read_only=True, help_text="Models that were imported last.")


class ModelSerializer(serializers.Serializer[Any]):
    """A name that can be used as `model`."""

    id = serializers.CharField()
    kind = serializers.ChoiceField(choices=MODEL_KINDS)
    description = serializers.CharField(allow_blank=True)
    adapter = serializers.CharField(allow_null=True, help_text="Name of the adapter; null: the model is a base model.")
    version = serializers.IntegerField(
        allow_null=True, help_text="Number of the adapter's live version; null: the model is a base model."
    )
    aliases = serializers.ListField(child=serializers.CharField(), help_text="Further ids of the same adapter.")
    created_at = serializers.DateTimeField()
    base_model = serializers.CharField(
        source="base.name",
        default=None,
        allow_null=True,
        help_text="Name of the base model on which the model runs, for a base model its own; null: it is not served.",
    )
