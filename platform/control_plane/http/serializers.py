from typing import Any

from rest_framework import serializers


class ErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField(help_text="What happened.")
    fix = serializers.CharField(help_text="What to do about it.")
    param = serializers.CharField(allow_null=True, help_text="The input at fault, if one is.")
    request_id = serializers.CharField()


class ErrorResponseSerializer(serializers.Serializer[Any]):
    error = ErrorSerializer()


class ProblemSerializer(serializers.Serializer[Any]):
    """A fault that is stored with a thing: why an upload was refused, why a staging failed."""

    code = serializers.CharField()
    message = serializers.CharField()
    fix = serializers.CharField()
