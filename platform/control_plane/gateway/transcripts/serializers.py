from typing import Any

from rest_framework import serializers

from control_plane.gateway.transcripts.models import LONGEST_DAYS


class RecordingSerializer(serializers.Serializer[Any]):
    """Whether prompts and answers are kept with the requests, and for how long."""

    enabled = serializers.BooleanField()
    days = serializers.IntegerField(min_value=1, max_value=LONGEST_DAYS, help_text="Then they are deleted.")


class TranscriptMessageSerializer(serializers.Serializer[Any]):
    role = serializers.CharField(help_text='As in the request; "text" or "token_ids" for a prompt without roles.')
    content = serializers.CharField(allow_blank=True)


class TranscriptSerializer(serializers.Serializer[Any]):
    prompt = TranscriptMessageSerializer(many=True)
    answers = serializers.ListField(child=serializers.CharField(allow_blank=True), help_text="One for each choice.")
    settings = serializers.DictField(
        allow_null=True,
        help_text="How it was asked for, by the parameters' names: sampling, `response_format`, `tools`. "
        "Null = longer than is kept, or from before they were.",
    )
    cut = serializers.BooleanField(help_text="It was longer than is kept.")


class TranscriptsQuerySerializer(serializers.Serializer[Any]):
    request = serializers.CharField(max_length=64, help_text="A request's id.")
