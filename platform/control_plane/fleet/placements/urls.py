"""URLs of placements and pins below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.fleet.placements.pin_views import PinsView, PinView, PrefixesView, PrefixView
from control_plane.fleet.placements.staging_views import RetryView, StagingView
from control_plane.fleet.placements.views import AdapterDtypeView, RestageView

urlpatterns = [
    path("adapters/<str:name>/versions/<int:number>/restage", RestageView.as_view(), name="version-restage"),
    path("adapters/<str:name>/versions/<int:number>/dtype", AdapterDtypeView.as_view(), name="version-dtype"),
    path("adapters/<str:name>/pin", PinView.as_view(), name="adapter-pin"),
    path("pins", PinsView.as_view(), name="pins"),
    path("pinned-prefixes", PrefixesView.as_view(), name="pinned-prefixes"),
    path("pinned-prefixes/<str:prefix_name>", PrefixView.as_view(), name="pinned-prefix"),
]
operator_urlpatterns = [
    path("staging", StagingView.as_view(), name="staging"),
    path("staging/<uuid:placement_id>/retry", RetryView.as_view(), name="staging-retry"),
]
