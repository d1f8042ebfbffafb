from typing import Any

from rest_framework import serializers

from control_plane.core.http.lists import ListQuerySerializer
from control_plane.core.http.serializers import AccountField, NameField
from control_plane.identity.keys.actions import LONGEST_GRACE
from control_plane.identity.keys.queries import KeySort, KeyState
from control_plane.identity.tenants.roles import KEY_SCOPES

SCOPES = sorted(scope.value for scope in KEY_SCOPES)


class KeyListQuerySerializer(ListQuerySerializer):
    """The part of the keys that a list has, and their order."""

    state = serializers.ChoiceField(
        choices=KeyState.values,
        required=False,
        default="",
        allow_blank=True,
        help_text="`usable` keys are neither revoked nor expired. Left out: all.",
    )
    scope = serializers.ChoiceField(
        choices=SCOPES, required=False, default="", allow_blank=True, help_text="Only keys with this scope."
    )
    sort = serializers.ChoiceField(
        choices=[sign + column for column in KeySort.values for sign in ("", "-")],
        required=False,
        default=f"-{KeySort.CREATED_AT}",
    )


class ApiKeySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="Public part of the key: `lk_<prefix>_...`.")
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))
    created_at = serializers.DateTimeField()
    created_by = AccountField("created_by", "created the key")
    last_used_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the last request, up to a minute late; null: the key was never used."
    )
    expires_at = serializers.DateTimeField(
        allow_null=True, help_text="Time from which the key is refused; null: it does not expire."
    )
    revoked_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the key was revoked; null: it was not."
    )
    rotated_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the last rotation; null: the key was never rotated."
    )
    previous_until = serializers.DateTimeField(
        allow_null=True,
        help_text="Time until which the secret before the last rotation is accepted; null: the key was never rotated.",
    )


class CreatedApiKeySerializer(ApiKeySerializer):
    secret = serializers.CharField(help_text="The whole key, which is shown only once and not stored.")


class NewApiKeySerializer(serializers.Serializer[Any]):
    name = NameField(max_length=80)
    scopes = serializers.ListField(
        child=NameField(max_length=32),
        required=False,
        default=list,
        max_length=16,
        help_text=f"Scopes of the key, any of {', '.join(SCOPES)}; left out: all of them.",
    )
    expires_at = serializers.DateTimeField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Time from which the key is refused; null: it does not expire.",
    )


class ChangeApiKeySerializer(serializers.Serializer[Any]):
    """Changes of a key; a field that is left out keeps its value."""

    name = NameField(max_length=80, required=False)
    scopes = serializers.ListField(child=NameField(max_length=32), required=False, allow_empty=False, max_length=16)
    expires_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="Time from which the key is refused; null: it does not expire."
    )


class RotateApiKeySerializer(serializers.Serializer[Any]):
    grace_s = serializers.IntegerField(
        min_value=0,
        max_value=int(LONGEST_GRACE.total_seconds()),
        default=86_400,
        help_text="Seconds for which the old secret is still accepted.",
    )
