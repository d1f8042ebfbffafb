from typing import Any

from rest_framework import serializers

from control_plane.tenants.roles import Role


class MemberSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="user.id")
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user.name")
    role = serializers.ChoiceField(choices=Role.choices)
    joined_at = serializers.DateTimeField(source="created_at")
