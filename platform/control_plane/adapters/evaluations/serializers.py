"""JSON of evaluation sets and evaluations."""

from typing import Any

from rest_framework import serializers

from control_plane.adapters.evaluations.models import EvaluationState
from control_plane.adapters.registry.models import NAME, EvaluationMetric
from control_plane.adapters.registry.serializers import ScoreSerializer
from control_plane.core.http.serializers import NameField, ProblemSerializer

MAX_TOKENS = 1024
_METRICS = (
    "exact: the answer is the expected text, white space around either ignored; contains: the answer contains it; "
    "logprob: the mean natural log-probability of its tokens after the prompt. A score is the mean over all items."
)


class EvaluationSetSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    metric = serializers.ChoiceField(choices=EvaluationMetric.choices, help_text=_METRICS)
    max_tokens = serializers.IntegerField(help_text="Maximum number of tokens of an answer.")
    items = serializers.IntegerField(source="count", help_text="Number of items in the set.")
    created_at = serializers.DateTimeField()


class NewEvaluationSetSerializer(serializers.Serializer[Any]):
    """The multipart form of a new set."""

    name = NameField(max_length=64, validators=[NAME])
    metric = serializers.ChoiceField(choices=EvaluationMetric.choices, help_text=_METRICS)
    max_tokens = serializers.IntegerField(
        min_value=1,
        max_value=MAX_TOKENS,
        required=False,
        default=64,
        help_text="Maximum number of tokens of an answer; none for logprob.",
    )
    file = serializers.FileField(
        max_length=255, help_text='JSON lines of {"prompt" or "messages", "expected"}: all prompts, or all messages.'
    )


class NewEvaluationSerializer(serializers.Serializer[Any]):
    """An evaluation to start, of a version, or of the version that an upload becomes."""

    set = NameField(max_length=64)
    adapter = NameField(max_length=64, required=False, default=None)
    version = serializers.IntegerField(min_value=1, max_value=2**31 - 1, required=False, default=None)
    upload = serializers.UUIDField(
        required=False, default=None, help_text="Id of an upload to evaluate, instead of adapter and version."
    )
    key = serializers.UUIDField(
        required=False,
        default=None,
        help_text="Id of the API key with which the requests are counted; an API key can name only itself.",
    )

    def validate(self, attrs: Any) -> Any:
        named = attrs["adapter"] is not None and attrs["version"] is not None
        if named == (attrs["upload"] is not None):
            raise serializers.ValidationError({"version": "Name an adapter and its version, or an upload."})
        return attrs


class EvaluationSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    set = serializers.CharField(source="set_name")
    adapter = serializers.CharField(source="adapter_name")
    version = serializers.IntegerField(
        source="version.number",
        default=None,
        allow_null=True,
        help_text="Number of the version; null: its requests have not begun, and the evaluation is one of an upload.",
    )
    upload = serializers.UUIDField(
        source="upload_id",
        allow_null=True,
        help_text="Id of the upload whose version is evaluated; null: the evaluation was started for a version.",
    )
    key = serializers.CharField(source="api_key.name", help_text="API key with which the requests are counted.")
    batch = serializers.SerializerMethodField(
        help_text="Id of the batch that runs the requests; null: they have not begun, or the batch was deleted."
    )
    state = serializers.ChoiceField(choices=EvaluationState.choices)
    problem = ProblemSerializer(allow_null=True, help_text="Reason why the evaluation waits or failed; null: neither.")
    score = ScoreSerializer(allow_null=True, help_text="Result of the evaluation; null: it is not completed.")
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the evaluation was completed, failed or cancelled; null: it is open."
    )

    def get_batch(self, evaluation: Any) -> str | None:
        return str(evaluation.batch) if evaluation.batch else None


class NewPromotionRuleSerializer(serializers.Serializer[Any]):
    set = NameField(max_length=64)
    key = serializers.UUIDField(
        required=False,
        default=None,
        help_text="Id of the API key with which evaluations' requests are counted; an API key can name only itself.",
    )
    minimum = serializers.FloatField(
        required=False,
        allow_null=True,
        default=None,
        min_value=-1000,
        max_value=1,
        help_text="Lowest score with which a version may become live; null: any score.",
    )
    not_worse_than_live = serializers.BooleanField(required=False, default=True)
