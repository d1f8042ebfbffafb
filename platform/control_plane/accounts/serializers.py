from typing import Any

from rest_framework import serializers

from control_plane.tenants.roles import Capability, Role


class SessionUserSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    email = serializers.EmailField()
    name = serializers.CharField()
    is_operator = serializers.BooleanField()


class SessionTenantSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    capabilities = serializers.ListField(child=serializers.ChoiceField(choices=Capability.choices))


class SessionSerializer(serializers.Serializer[Any]):
    authenticated = serializers.BooleanField()
    csrf_token = serializers.CharField(help_text="Send as X-CSRFToken with every POST, PUT, PATCH and DELETE.")
    user = SessionUserSerializer(allow_null=True)
    tenants = SessionTenantSerializer(many=True)


class LoginSerializer(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)
    password = serializers.CharField(max_length=1024, trim_whitespace=False, write_only=True)
