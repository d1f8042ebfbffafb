from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.core.errors import LorikeetError
from control_plane.core.http.field_texts import fault_of
from control_plane.core.http.known_names import require_known
from control_plane.core.names import name_problem


class ErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField(help_text="Sentence that says what happened.")
    fix = serializers.CharField(help_text="Sentence that says what to do about it.")
    param = serializers.CharField(
        allow_null=True, help_text="Name of the input at fault; null: none is, or it is not known."
    )
    request_id = serializers.CharField()


class ErrorResponseSerializer(serializers.Serializer[Any]):
    error = ErrorSerializer()


# Refusals that only some operations have, for `responses` of `extend_schema`.
CONFLICT: dict[int, Any] = {409: ErrorResponseSerializer}
NOT_FOUND: dict[int, Any] = {404: ErrorResponseSerializer}


class ProblemSerializer(serializers.Serializer[Any]):
    """An error that is stored with a resource: why an upload was refused, why a staging failed."""

    code = serializers.CharField()
    message = serializers.CharField()
    fix = serializers.CharField()


def _validate_name(text: str) -> None:
    if (problem := name_problem(text)) is not None:
        raise serializers.ValidationError(problem, code="invalid")


class NameField(serializers.CharField):
    """A name or label that a caller chooses or refers to: any text that is not prose, a secret or a URL.

    `tests/contract/test_names.py` finds request fields that should be one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.validators.append(_validate_name)


class AccountField(serializers.CharField):
    """The e-mail address of the account that did something, such as "created the set", in column `of`.

    Without an account it is null. `otherwise` says when that is, besides: "an API key did".
    """

    def __init__(self, of: str, deed: str, *, otherwise: str = "") -> None:
        others = f"{otherwise}, or " if otherwise else ""
        super().__init__(
            source=f"{of}.email",
            default=None,
            allow_null=True,
            help_text=f"E-mail address of the account that {deed}; null: {others}the account no longer exists.",
        )


class FormField(serializers.RegexField):
    """A text of a regular form. `form` describes it in an error, such as "three capital letters"."""

    def __init__(self, regex: str, *, form: str, **options: Any) -> None:
        super().__init__(regex, error_messages={"invalid": f"Send {form}."}, **options)


class MomentField(serializers.DateTimeField):
    """A time that can be queried."""

    def to_internal_value(self, value: Any) -> datetime:
        """Parse a time. Raises ValidationError."""
        moment: datetime = super().to_internal_value(value)
        _require_year(moment)
        return moment


class DayField(serializers.DateField):
    """A day whose rows can be queried."""

    def to_internal_value(self, value: Any) -> date:
        """Parse a day. Raises ValidationError."""
        day: date = super().to_internal_value(value)
        _require_year(day)
        return day


# Years of times and days in queries. The database fails near the year 1, and after 9999-12-31 there is no next day.
FIRST_YEAR, LAST_YEAR = 1970, 9000


def _require_year(moment: date) -> None:
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise serializers.ValidationError(f"Years go from {FIRST_YEAR} to {LAST_YEAR}.", code="invalid")


def validated(kind: type[serializers.Serializer[Any]], data: Any) -> Any:
    """Return the validated fields of a body or form.

    Raises LorikeetError (400), which names the field at fault, also for a field that is unknown.
    """
    serializer = kind(data=data)
    require_known_fields(serializer, data)
    require_valid(serializer)
    return serializer.validated_data


def read_query(kind: type[serializers.Serializer[Any]], request: Request) -> Any:
    """Return the query parameters of a request that are fields of `kind`, validated. Raises LorikeetError (400).

    `ApiView` has refused the parameters that the address does not declare.
    """
    serializer = kind(data=request.query_params.dict())
    require_valid(serializer)
    return serializer.validated_data


def require_valid(serializer: serializers.BaseSerializer[Any]) -> None:
    """Validate the serializer's data. Raises LorikeetError (400) for the first field at fault."""
    if not serializer.is_valid():
        fault = fault_of(serializer.errors, serializer)
        raise LorikeetError("invalid_request", fault.message, fault.fix, param=fault.param)


def require_known_fields(serializer: serializers.BaseSerializer[Any], data: Any, path: str = "") -> None:
    """Raise LorikeetError (400) for a name in a body, at any depth, that is not a writable field."""
    if isinstance(serializer, serializers.ListSerializer):
        child = serializer.child
        assert isinstance(child, serializers.BaseSerializer)
        for number, item in enumerate(data if isinstance(data, list) else []):
            require_known_fields(child, item, f"{path[:-1]}[{number}].")
    elif isinstance(serializer, serializers.Serializer) and isinstance(data, Mapping):
        fields = {name: field for name, field in serializer.fields.items() if not field.read_only}
        require_known([f"{path}{name}" for name in data], {f"{path}{name}" for name in fields}, "field")
        for name, field in fields.items():
            if isinstance(field, serializers.BaseSerializer) and name in data:
                require_known_fields(field, data[name], f"{path}{name}.")
