"""Addresses below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.origins.views import OriginsView

urlpatterns = [path("origins", OriginsView.as_view(), name="origins")]
