"""The JSON of joining and of join tokens, for the API's schema."""

from typing import Any

from rest_framework import serializers

from control_plane.core.http.serializers import FormField
from control_plane.core.jobs import clocks
from control_plane.fleet.joining.joining import ADDRESS_FORM, NAME_FORM
from control_plane.fleet.joining.models import JoinToken

# The form of a host's name, for errors.
_NAME = "a host's name: letters, digits, dots, hyphens and underscores, beginning with a letter or digit"
TOKEN_STATES = ["open", "used", "expired", "withdrawn"]
LONGEST_TOKEN_S = 30 * 86_400


class NewJoinTokenSerializer(serializers.Serializer[Any]):
    host = FormField(
        f"^(?:{NAME_FORM})?$",
        form=_NAME,
        max_length=63,
        required=False,
        default="",
        allow_blank=True,
        help_text="Name under which the machine joins; it replaces an existing host of that name. Without it the "
        "machine chooses a name, which must be new.",
    )
    expires_s = serializers.IntegerField(
        min_value=60, max_value=LONGEST_TOKEN_S, default=3600, help_text="Seconds for which the token can be used."
    )


class JoinTokenSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    host = serializers.CharField(
        source="host_name",
        allow_blank=True,
        help_text="Name under which the host joins; empty: the machine chooses a new name.",
    )
    state = serializers.SerializerMethodField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    used_by = serializers.CharField(
        source="used_by.name",
        default=None,
        allow_null=True,
        help_text="Name of the host that joined with the token; null: none.",
    )

    def get_state(self, token: JoinToken) -> str:
        if token.used_at is not None:
            return "used"
        if token.withdrawn_at is not None:
            return "withdrawn"
        return "expired" if token.expires_at <= clocks.now() else "open"


class CreatedJoinTokenSerializer(JoinTokenSerializer):
    token = serializers.CharField(help_text="The token's secret text, which only this response contains.")
    join_url = serializers.CharField(help_text="URL to pass to the engine's option `--join`.")


class JoinSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(max_length=200)
    name = FormField(f"^{NAME_FORM}$", form=_NAME, max_length=63)
    address = FormField(
        f"^{ADDRESS_FORM}$",
        form="host:port, such as gpu1.example.org:9000",
        max_length=300,
        help_text="Address at which the control plane reaches the engine: host:port.",
    )
    wire_version = serializers.IntegerField(
        min_value=0,
        max_value=1_000_000,
        default=0,
        help_text="Version of the protocol between control plane and engines that the engine supports.",
    )
    certificate_request = serializers.CharField(
        max_length=8000, help_text="Certificate request of a P-256 key: PKCS #10 in PEM."
    )


class JoinedSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    certificate = serializers.CharField(help_text="Certificate of the host, in PEM.")
    authority = serializers.CharField(
        help_text="Certificate of the authority that certifies the control plane, in PEM."
    )
    expires_at = serializers.DateTimeField()
