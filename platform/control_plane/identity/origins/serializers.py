from typing import Any

from rest_framework import serializers

from control_plane.identity.origins.models import LONGEST_ORIGIN

MAX_ORIGINS = 32


class AllowedOriginsSerializer(serializers.Serializer[Any]):
    """The origins of web pages that may call inference with this tenant's keys."""

    origins = serializers.ListField(
        child=serializers.RegexField(
            r"^https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?\Z",
            max_length=LONGEST_ORIGIN,
            error_messages={"invalid": "Write an origin as browsers send it: https://app.example.org, no path, no *."},
        ),
        max_length=MAX_ORIGINS,
        help_text="Origins like https://app.example.org, without a path. None by default.",
    )
