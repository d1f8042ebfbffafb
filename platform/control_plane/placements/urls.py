"""Addresses below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.placements import host_views
from control_plane.placements.views import RestageView

urlpatterns = [
    path("hosts", host_views.HostsView.as_view(), name="hosts"),
    path("adapters/<str:name>/versions/<int:number>/restage", RestageView.as_view(), name="version-restage"),
]
operator_urlpatterns = [
    path("hosts", host_views.OperatorHostsView.as_view(), name="operator-hosts"),
    path("base-model", host_views.OperatorBaseModelView.as_view(), name="base-model"),
]
