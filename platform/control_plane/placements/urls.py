"""Addresses below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.placements import host_views as views

urlpatterns = [path("hosts", views.HostsView.as_view(), name="hosts")]
operator_urlpatterns = [
    path("hosts", views.OperatorHostsView.as_view(), name="operator-hosts"),
    path("base-model", views.OperatorBaseModelView.as_view(), name="base-model"),
]
