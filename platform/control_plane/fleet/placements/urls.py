"""Addresses below /api/tenants/{tenant}/, below /api/operator/ and below /api/."""

from django.urls import path

from control_plane.fleet.placements import base_model_views, host_views, join_views
from control_plane.fleet.placements.pin_views import PinsView, PinView, PrefixesView, PrefixView
from control_plane.fleet.placements.staging_views import RetryView, StagingView
from control_plane.fleet.placements.views import RestageView, TiersView

urlpatterns = [
    path("hosts", host_views.HostsView.as_view(), name="hosts"),
    path("hosts/<str:host_name>/pages", host_views.HostPagesView.as_view(), name="host-pages"),
    path("adapters/<str:name>/versions/<int:number>/tiers", TiersView.as_view(), name="version-tiers"),
    path("adapters/<str:name>/versions/<int:number>/restage", RestageView.as_view(), name="version-restage"),
    path("adapters/<str:name>/pin", PinView.as_view(), name="adapter-pin"),
    path("pins", PinsView.as_view(), name="pins"),
    path("pinned-prefixes", PrefixesView.as_view(), name="pinned-prefixes"),
    path("pinned-prefixes/<str:prefix_name>", PrefixView.as_view(), name="pinned-prefix"),
]
operator_urlpatterns = [
    path("hosts", host_views.OperatorHostsView.as_view(), name="operator-hosts"),
    path("hosts/<str:host_name>", join_views.OperatorHostView.as_view(), name="operator-host"),
    path("hosts/<str:host_name>/credential", join_views.HostCredentialView.as_view(), name="host-credential"),
    path("join-tokens", join_views.JoinTokensView.as_view(), name="join-tokens"),
    path("join-tokens/<uuid:token_id>", join_views.JoinTokenView.as_view(), name="join-token"),
    path("hosts/<str:host_name>/pages", host_views.OperatorHostPagesView.as_view(), name="operator-host-pages"),
    path("hosts/<str:host_name>/service", host_views.OperatorHostServiceView.as_view(), name="host-service"),
    path("hosts/<str:host_name>/restart", host_views.OperatorHostRestartView.as_view(), name="host-restart"),
    path("staging", StagingView.as_view(), name="staging"),
    path("staging/<uuid:placement_id>/retry", RetryView.as_view(), name="staging-retry"),
    path("base-model", base_model_views.OperatorBaseModelView.as_view(), name="base-model"),
    path("base-models", base_model_views.OperatorBaseModelsView.as_view(), name="base-models"),
    path("base-models/<str:digest>", base_model_views.OperatorServedBaseModelView.as_view(), name="served-base-model"),
]
# Below /api/: for machines that are no host yet.
join_urlpatterns = [path("hosts/join", join_views.JoinView.as_view(), name="join-fleet")]
