from typing import Any

from rest_framework import serializers

from control_plane.core.http.serializers import NameField
from control_plane.identity.tenants.roles import Capability, Role


class SessionUserSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    email = serializers.EmailField()
    name = serializers.CharField()
    is_operator = serializers.BooleanField()
    second_factor = serializers.BooleanField(
        source="has_second_factor", help_text="Whether the person signs in with a second factor."
    )
    has_password = serializers.BooleanField(
        source="has_usable_password", help_text="Whether the person has a password; others sign in by provider."
    )


class SessionTenantSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    second_factor_required = serializers.BooleanField(
        help_text="Whether members need a second factor; without one they have no capabilities here."
    )
    capabilities = serializers.ListField(child=serializers.ChoiceField(choices=Capability.choices))
    suspended_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time since which the tenant's keys are refused and its members can only read; null: not suspended.",
    )
    suspended_for = serializers.CharField(
        allow_blank=True,
        help_text="Reason of the suspension, in the operator's words; empty: the tenant is not suspended.",
    )


class SignInErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()
    fix = serializers.CharField()


class SessionSerializer(serializers.Serializer[Any]):
    authenticated = serializers.BooleanField()
    csrf_token = serializers.CharField(help_text="Token to send as X-CSRFToken with every POST, PUT, PATCH and DELETE.")
    password_login = serializers.BooleanField(help_text="Whether signing in with a password is possible here.")
    provider = serializers.CharField(
        allow_null=True, help_text="Name of the provider to sign in with; null: none is set up."
    )
    sends_mail = serializers.BooleanField(help_text="Whether a mail server is set up, so that links are mailed.")
    sign_in_error = SignInErrorSerializer(
        allow_null=True,
        help_text="Reason why the last sign-in by provider failed, returned once; null: it did not fail.",
    )
    second_factor_for = serializers.CharField(
        allow_null=True,
        help_text="Address of the person whose sign-in waits for its second factor; null: no sign-in waits.",
    )
    user = SessionUserSerializer(allow_null=True, help_text="Person who is signed in; null: nobody is.")
    tenants = SessionTenantSerializer(many=True)


class LoginSerializer(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)
    password = serializers.CharField(max_length=1024, trim_whitespace=False, write_only=True)


class ProfileSerializer(serializers.Serializer[Any]):
    name = NameField(max_length=120, allow_blank=True, help_text="Name that other members see.")


class ChangePasswordSerializer(serializers.Serializer[Any]):
    current_password = serializers.CharField(max_length=1024, trim_whitespace=False, write_only=True)
    password = serializers.CharField(max_length=1024, trim_whitespace=False, write_only=True)


class ForgotPasswordSerializer(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)


class ResetPasswordSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(max_length=200)
    password = serializers.CharField(max_length=1024, trim_whitespace=False, write_only=True)


class DeviceSerializer(serializers.Serializer[Any]):
    """A session of the calling person. Its key is never sent."""

    id = serializers.UUIDField()
    current = serializers.BooleanField(help_text="Whether this session sent the request.")
    address = serializers.CharField(
        help_text="Network address from which the session was last used; empty if it is not recorded."
    )
    user_agent = serializers.CharField(help_text="User-Agent header of the browser.")
    created_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField(help_text="Time of the last use, accurate to five minutes.")
