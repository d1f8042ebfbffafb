from typing import Any

from rest_framework import serializers

from control_plane.core.http.serializers import NameField


class AppSerializer(serializers.Serializer[Any]):
    created_at = serializers.DateTimeField(source="confirmed_at")
    last_used_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which a code of the app was last accepted; null: never."
    )


class PasskeySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the passkey was last used; null: never."
    )


class SecondFactorsSerializer(serializers.Serializer[Any]):
    """The second factors of the calling person."""

    app = AppSerializer(allow_null=True, help_text="Authenticator app of the person; null: none is set up.")
    passkeys = PasskeySerializer(many=True)
    recovery_codes_left = serializers.IntegerField(help_text="Number of unused recovery codes.")
    required_by = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the person's tenants that require a second factor."
    )
    passkeys_available = serializers.BooleanField(
        help_text="False where browsers offer no passkeys: without a host name or HTTPS."
    )
    confirmed = serializers.BooleanField(
        help_text="Whether changes are accepted without POST /api/session/confirmation first."
    )


class RecoveryCodesSerializer(serializers.Serializer[Any]):
    recovery_codes = serializers.ListField(
        child=serializers.CharField(),
        help_text="Recovery codes, shown only once; empty unless this was the first second factor.",
    )


class AddedPasskeySerializer(RecoveryCodesSerializer):
    passkey = PasskeySerializer()


class AppSetupSerializer(serializers.Serializer[Any]):
    secret = serializers.CharField(help_text="Secret in base32, to type into an app that cannot scan.")
    uri = serializers.CharField(help_text="The otpauth:// URI that the QR code holds.")
    qr = serializers.ListField(child=serializers.CharField(), help_text="Rows of the QR code: 1 is a dark module.")


class CodeSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(max_length=40, help_text="A code of the authenticator app.")


class NewPasskeySerializer(serializers.Serializer[Any]):
    name = NameField(max_length=60)
    credential = serializers.DictField(help_text="PublicKeyCredential.toJSON() of navigator.credentials.create.")


class SecondFactorSerializer(serializers.Serializer[Any]):
    """A proof of the second factor: one of the two."""

    code = serializers.CharField(
        max_length=40, required=False, help_text="A code of the authenticator app, or a recovery code."
    )
    credential = serializers.DictField(
        required=False, help_text="PublicKeyCredential.toJSON() of navigator.credentials.get."
    )


class IdentityConfirmationSerializer(SecondFactorSerializer):
    """A proof of identity: one of the three. The password counts only for people without a second factor."""

    password = serializers.CharField(max_length=1024, required=False, trim_whitespace=False, write_only=True)


class MethodsSerializer(serializers.Serializer[Any]):
    app = serializers.BooleanField(help_text="Whether codes of an authenticator app are accepted.")
    passkey = serializers.BooleanField(help_text="Whether a passkey is accepted at this address.")
    password = serializers.BooleanField(help_text="Whether the password confirms: without a second factor.")


class RequirementSerializer(serializers.Serializer[Any]):
    second_factor_required = serializers.BooleanField(
        help_text="Members without a second factor can do nothing but set one up. API keys are not affected."
    )


class SecuritySerializer(RequirementSerializer):
    members_without = serializers.IntegerField(help_text="Number of members without a second factor.")
