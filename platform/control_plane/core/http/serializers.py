from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.core.http.known_names import require_known
from control_plane.core.names import name_problem


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


def _validate_name(text: str) -> None:
    if (problem := name_problem(text)) is not None:
        raise serializers.ValidationError(problem, code="invalid")


class NameField(serializers.CharField):
    """A name or label that somebody chooses, or that refers to one: any text that is not prose, a secret or a URL.

    `tests/contract/test_names.py` finds fields of requests that should be one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.validators.append(_validate_name)


class MomentField(serializers.DateTimeField):
    """One that can be asked about: there is no time some days before the first year, or after the last one."""

    first_year, last_year = 1970, 9000

    def to_internal_value(self, value: Any) -> datetime:
        """Raises ValidationError."""
        moment: datetime = super().to_internal_value(value)
        if not self.first_year <= moment.year <= self.last_year:
            raise serializers.ValidationError(f"Years go from {self.first_year} to {self.last_year}.", code="invalid")
        return moment


def validated(kind: type[serializers.Serializer[Any]], given: Any) -> Any:
    """The validated fields of a body or form.

    Raises ValidationError (400), which names the field at fault, or LorikeetError (400) for a field that is unknown.
    """
    serializer = kind(data=given)
    require_known_fields(serializer, given)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def read_query(kind: type[serializers.Serializer[Any]], request: Request) -> Any:
    """The validated query parameters of a request that are fields of `kind`. Raises ValidationError (400).

    `ApiView` has refused those that the address does not know.
    """
    serializer = kind(data=request.query_params.dict())
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def require_known_fields(serializer: serializers.BaseSerializer[Any], given: Any, path: str = "") -> None:
    """Raise LorikeetError (400) for a name in a body, at any depth, that is no field which can be written."""
    if isinstance(serializer, serializers.ListSerializer):
        child = serializer.child
        assert isinstance(child, serializers.BaseSerializer)
        for number, item in enumerate(given if isinstance(given, list) else []):
            require_known_fields(child, item, f"{path[:-1]}[{number}].")
    elif isinstance(serializer, serializers.Serializer) and isinstance(given, Mapping):
        fields = {name: field for name, field in serializer.fields.items() if not field.read_only}
        require_known([f"{path}{name}" for name in given], {f"{path}{name}" for name in fields}, "field")
        for name, field in fields.items():
            if isinstance(field, serializers.BaseSerializer) and name in given:
                require_known_fields(field, given[name], f"{path}{name}.")
