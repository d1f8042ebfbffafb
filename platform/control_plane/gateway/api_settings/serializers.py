from typing import Any

from rest_framework import serializers


class ApiSettingsSerializer(serializers.Serializer[Any]):
    """The settings of the inference API for this tenant's requests."""

    refuse_unknown_fields = serializers.BooleanField(
        help_text="Refuse requests with unknown fields, instead of leaving the fields out and naming them in the "
        "header X-Lorikeet-Ignored."
    )
    never_store_responses = serializers.BooleanField(
        help_text="Store no answer of /v1/responses, whatever its request says: previous_response_id has no use then."
    )
