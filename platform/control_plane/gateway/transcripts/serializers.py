from typing import Any

from rest_framework import serializers

from control_plane.gateway.transcripts.models import LONGEST_DAYS


class RecordingSerializer(serializers.Serializer[Any]):
    """The recording setting: whether prompts and answers are stored with the requests, and for how long."""

    enabled = serializers.BooleanField()
    days = serializers.IntegerField(
        min_value=1, max_value=LONGEST_DAYS, help_text="Days after which each text is deleted."
    )


class TranscriptMessageSerializer(serializers.Serializer[Any]):
    role = serializers.CharField(help_text='The role in the request; "text" or "token_ids" for a prompt without roles.')
    content = serializers.CharField(allow_blank=True)


class TranscriptSerializer(serializers.Serializer[Any]):
    prompt = TranscriptMessageSerializer(many=True)
    answers = serializers.ListField(child=serializers.CharField(allow_blank=True), help_text="Text of each choice.")
    settings = serializers.DictField(
        allow_null=True,
        help_text="Parameters of the request: sampling, `response_format`, `tools`. "
        "Null if they were too long to store, or the request is older than this field.",
    )
    cut = serializers.BooleanField(help_text="Whether the text was cut because of its length.")


class TranscriptsQuerySerializer(serializers.Serializer[Any]):
    request = serializers.CharField(max_length=64, help_text="The id of a request.")
