"""Every HTTP address, in the order in which they are tried."""

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from control_plane.accounts.views import SessionView
from control_plane.http.health import livez, readyz
from control_plane.overview.views import OverviewView
from control_plane.prices import urls as prices
from control_plane.reports import urls as reports
from control_plane.tenants.views import MembersView

handler400 = "control_plane.http.errors.bad_request"
handler404 = "control_plane.http.errors.not_found"
handler500 = "control_plane.http.errors.server_error"

tenant_urls: list[URLPattern | URLResolver] = [
    path("overview", OverviewView.as_view(), name="overview"),
    path("members", MembersView.as_view(), name="members"),
    path("", include("control_plane.adapters.urls")),
    path("", include("control_plane.fleet.urls")),
    path("", include("control_plane.keys.urls")),
    path("", include("control_plane.prices.urls")),
    path("", include("control_plane.reports.urls")),
    path("", include("control_plane.usage.urls")),
    path("", include("control_plane.webhooks.urls")),
]

operator_urls: list[URLPattern | URLResolver] = [*prices.operator_urlpatterns, *reports.operator_urlpatterns]

urlpatterns = [
    path("livez", livez),
    path("readyz", readyz),
    path("api/session", SessionView.as_view(), name="session"),
    path("api/schema", SpectacularAPIView.as_view(permission_classes=[]), name="schema"),
    path("api/docs", SpectacularSwaggerSplitView.as_view(url_name="schema", permission_classes=[]), name="docs"),
    path("api/tenants/<slug:tenant>/", include(tenant_urls)),
    path("api/operator/", include(operator_urls)),
    path("v1/", include("control_plane.gateway.urls")),
]
