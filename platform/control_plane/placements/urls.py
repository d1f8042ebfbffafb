"""Addresses below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.placements.host_views import HostsView, OperatorHostsView

urlpatterns = [path("hosts", HostsView.as_view(), name="hosts")]
operator_urlpatterns = [path("hosts", OperatorHostsView.as_view(), name="operator-hosts")]
