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


def validated(kind: type[serializers.Serializer[Any]], given: Any) -> Any:
    """The validated fields of a body or query. Raises ValidationError (400), which names the field at fault."""
    serializer = kind(data=given)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data
