"""Addresses below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.placements import host_views
from control_plane.placements.staging_views import RetryView, StagingView
from control_plane.placements.views import RestageView, TiersView

urlpatterns = [
    path("hosts", host_views.HostsView.as_view(), name="hosts"),
    path("hosts/<str:host_name>/pages", host_views.HostPagesView.as_view(), name="host-pages"),
    path("adapters/<str:name>/versions/<int:number>/tiers", TiersView.as_view(), name="version-tiers"),
    path("adapters/<str:name>/versions/<int:number>/restage", RestageView.as_view(), name="version-restage"),
]
operator_urlpatterns = [
    path("hosts", host_views.OperatorHostsView.as_view(), name="operator-hosts"),
    path("hosts/<str:host_name>/pages", host_views.OperatorHostPagesView.as_view(), name="operator-host-pages"),
    path("hosts/<str:host_name>/service", host_views.OperatorHostServiceView.as_view(), name="host-service"),
    path("hosts/<str:host_name>/restart", host_views.OperatorHostRestartView.as_view(), name="host-restart"),
    path("staging", StagingView.as_view(), name="staging"),
    path("staging/<uuid:placement_id>/retry", RetryView.as_view(), name="staging-retry"),
    path("base-model", host_views.OperatorBaseModelView.as_view(), name="base-model"),
]
