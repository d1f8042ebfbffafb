"""Addresses below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.fleet.views import HostsView

urlpatterns = [path("hosts", HostsView.as_view(), name="hosts")]
