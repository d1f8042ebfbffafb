"""The JSON of pinned prefixes."""

from __future__ import annotations

import json
import re
from typing import Any

from rest_framework import serializers

from control_plane.adapters.registry.models import NAME
from control_plane.core.chats import (
    FUNCTION_NAME,
    MAX_DEFINITION_CHARS,
    MAX_TEMPLATE_CHARS,
    MAX_TEMPLATE_KWARGS,
    MAX_TOOLS,
    REASONING_EFFORTS,
)
from control_plane.core.http.serializers import NameField, ProblemSerializer
from control_plane.fleet.placements.models import PrefixState

ROLES = ("system", "developer", "user", "assistant")
MAX_MESSAGES = 256
# Characters of one text: more than any context window holds.
MAX_TEXT = 4_000_000
_FUNCTION = re.compile(FUNCTION_NAME)
_CHAT_FIELDS = ("tools", "chat_template_kwargs", "reasoning_effort")


class PrefixMessageSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=ROLES)
    content = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=MAX_TEXT)


class NewPrefixSerializer(serializers.Serializer[Any]):
    """A `prompt`, for completions, or `messages`, for chats, with which the requests begin that are to share it."""

    name = NameField(max_length=64, validators=[NAME])
    model = NameField(max_length=200, help_text="Name of an adapter, whose live version is used, or of a base model.")
    messages = serializers.ListField(
        child=PrefixMessageSerializer(), required=False, allow_empty=False, max_length=MAX_MESSAGES
    )
    tools = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        max_length=MAX_TOOLS,
        help_text="Tools of the requests that are to share the prefix, as in a chat.",
    )
    chat_template_kwargs = serializers.DictField(
        required=False, help_text="Variables of the chat template in the requests that are to share the prefix."
    )
    reasoning_effort = serializers.ChoiceField(
        choices=REASONING_EFFORTS,
        required=False,
        help_text="Reasoning effort of the requests that are to share the prefix.",
    )
    prompt = serializers.CharField(required=False, trim_whitespace=False, max_length=MAX_TEXT)
    cache_salt = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=256,
        help_text="Cache salt of the requests that are to share the prefix; empty: they have none.",
    )

    def validate_tools(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for tool in tools:
            function = tool.get("function")
            if tool.get("type") != "function" or not isinstance(function, dict):
                raise serializers.ValidationError('Each tool must be {"type": "function", "function": {…}}.')
            _check_function(function)
        _require_size(tools, MAX_DEFINITION_CHARS)
        return tools

    def validate_chat_template_kwargs(self, value: dict[str, Any]) -> dict[str, Any]:
        if len(value) > MAX_TEMPLATE_KWARGS:
            raise serializers.ValidationError(f"Send at most {MAX_TEMPLATE_KWARGS} variables.")
        _require_size(value, MAX_TEMPLATE_CHARS)
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("messages" in attrs) == ("prompt" in attrs):
            raise serializers.ValidationError({"messages": "Send either messages or a prompt."})
        if "prompt" in attrs and (stray := next((name for name in _CHAT_FIELDS if name in attrs), None)):
            raise serializers.ValidationError({stray: "It goes with messages, not with a prompt."})
        return attrs


def _require_size(value: object, most: int) -> None:
    if (size := len(json.dumps(value))) > most:
        raise serializers.ValidationError(f"It has {size} characters as JSON; send at most {most}.")


def _check_function(function: dict[str, Any]) -> None:
    if not _FUNCTION.fullmatch(str(function.get("name", ""))):
        raise serializers.ValidationError("A function has a name of 1-64 letters, digits, hyphens and underscores.")
    if not isinstance(function.get("description", ""), str):
        raise serializers.ValidationError("A function's description is text.")
    if not isinstance(function.get("parameters", {}), dict):
        raise serializers.ValidationError("A function's parameters are a JSON Schema.")


class HostPrefixSerializer(serializers.Serializer[Any]):
    host = serializers.CharField()
    state = serializers.ChoiceField(
        choices=PrefixState.choices,
        help_text="`computing`: it is being computed, or waits until requests leave time and room. `no_room`: "
        "older pins fill the host's share for pins. `over_quota`: older pins fill the tenant's "
        "quota. `off`: the host keeps no prefixes. `waiting`: the host has not reported it yet.",
    )
    bytes = serializers.IntegerField(help_text="Bytes of the host's device memory that the prefix takes.")
    error = ProblemSerializer(
        allow_null=True, help_text="Why the prefix could not be computed; null unless the state is `failed`."
    )


class PrefixSerializer(serializers.Serializer[Any]):
    """A pinned prefix, and what the hosts that answer for its model do with it."""

    name = serializers.CharField()
    model = serializers.CharField(
        allow_blank=True, help_text="Name of the adapter or base model; empty: a base model that is no longer served."
    )
    cache_salt = serializers.CharField(allow_blank=True)
    tokens = serializers.IntegerField(
        help_text="Number of tokens shared by all prompts that begin with the prefix; only full pages of them are kept."
    )
    bytes = serializers.IntegerField(
        help_text="Bytes of device memory that the prefix takes on one host, the largest where hosts differ."
    )
    pinned_at = serializers.DateTimeField()
    hosts = HostPrefixSerializer(
        many=True,
        help_text="Hosts that serve the prefix's model; empty: the adapter has no live version, or no host has "
        "the model.",
    )


class PrefixContentSerializer(serializers.Serializer[Any]):
    """The pinned text, as it was sent."""

    messages = PrefixMessageSerializer(many=True, required=False)
    tools = serializers.ListField(child=serializers.DictField(), required=False)
    chat_template_kwargs = serializers.DictField(required=False)
    reasoning_effort = serializers.CharField(required=False)
    prompt = serializers.CharField(required=False)


class PrefixTextSerializer(PrefixSerializer):
    content = PrefixContentSerializer()


class PinnedAdapterSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    bytes = serializers.IntegerField(
        help_text="Bytes of device memory that the adapter takes on one host, the largest where hosts differ; "
        "0: no host has its live version."
    )
    pinned_at = serializers.DateTimeField()


class TenantPinsSerializer(serializers.Serializer[Any]):
    """The adapters and prefixes that a tenant keeps in device memory."""

    used_bytes = serializers.IntegerField(
        help_text="Bytes of device memory that the tenant's pins take on the host where they take most."
    )
    limit_bytes = serializers.IntegerField(
        allow_null=True, help_text="Bytes of each host's device memory that the tenant may pin; null or 0: none."
    )
    adapters = PinnedAdapterSerializer(many=True)
    prefixes = PrefixSerializer(many=True)
