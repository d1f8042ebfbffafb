"""Every HTTP address, in the order of matching."""

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from control_plane.billing.prices import urls as prices
from control_plane.billing.quotas import urls as quotas
from control_plane.billing.refusals import urls as refusals
from control_plane.billing.reports import urls as reports
from control_plane.billing.slo import urls as slo
from control_plane.billing.usage import urls as usage
from control_plane.console.administration import urls as administration
from control_plane.console.overview.views import OverviewView
from control_plane.core.http.access import public
from control_plane.core.http.errors import read_only
from control_plane.core.http.health import health, livez, readyz, readyz_inference
from control_plane.core.http.metrics import metrics
from control_plane.core.http.version import ServerVersionView
from control_plane.fleet.base_models.api import urls as base_models
from control_plane.fleet.hosts.api import urls as hosts
from control_plane.fleet.joining import urls as joining
from control_plane.fleet.placements import urls as placements
from control_plane.gateway.openai import urls as openai
from control_plane.identity.audit import urls as audit
from control_plane.identity.members import urls as members
from control_plane.identity.second_factor import urls as second_factor

handler400 = "control_plane.core.http.errors.bad_request"
handler404 = "control_plane.core.http.errors.not_found"
handler500 = "control_plane.core.http.errors.server_error"

tenant_urls: list[URLPattern | URLResolver] = [
    path("overview", OverviewView.as_view(), name="overview"),
    path("", include("control_plane.adapters.registry.urls")),
    path("", include("control_plane.identity.audit.urls")),
    path("", include("control_plane.gateway.batches.urls")),
    path("", include("control_plane.adapters.canaries.urls")),
    path("", include("control_plane.adapters.evaluations.urls")),
    path("", include("control_plane.identity.origins.urls")),
    path("", include("control_plane.fleet.hosts.api.urls")),
    path("", include("control_plane.fleet.placements.urls")),
    path("", include("control_plane.identity.keys.urls")),
    path("", include("control_plane.console.live.urls")),
    path("", include("control_plane.billing.prices.urls")),
    path("", include("control_plane.billing.quotas.urls")),
    path("", include("control_plane.billing.refusals.urls")),
    path("", include("control_plane.billing.reports.urls")),
    path("", include("control_plane.billing.slo.urls")),
    path("", include("control_plane.identity.members.urls")),
    path("", include("control_plane.identity.second_factor.urls")),
    path("", include("control_plane.gateway.transcripts.urls")),
    path("", include("control_plane.gateway.api_settings.urls")),
    path("", include("control_plane.billing.usage.urls")),
    path("", include("control_plane.console.webhooks.urls")),
]

operator_urls: list[URLPattern | URLResolver] = [
    *administration.operator_urlpatterns,
    *audit.operator_urlpatterns,
    *base_models.operator_urlpatterns,
    *hosts.operator_urlpatterns,
    *joining.operator_urlpatterns,
    *placements.operator_urlpatterns,
    *prices.operator_urlpatterns,
    *quotas.operator_urlpatterns,
    *refusals.operator_urlpatterns,
    *reports.operator_urlpatterns,
    *slo.operator_urlpatterns,
    *usage.operator_urlpatterns,
]

schema = read_only(SpectacularAPIView.as_view(permission_classes=[]))
docs = read_only(SpectacularSwaggerSplitView.as_view(url_name="schema", permission_classes=[]))

urlpatterns = [
    path("health", health),
    path("ping", health),
    path("version", ServerVersionView.as_view()),
    path("livez", livez),
    path("readyz", readyz),
    path("readyz/inference", readyz_inference),
    path("metrics", metrics),
    path("api/", include("control_plane.identity.accounts.urls")),
    path("api/", include(members.offer_urlpatterns)),
    path("api/", include(second_factor.person_urlpatterns)),
    path("api/", include(joining.join_urlpatterns)),
    path("api/schema", public(schema), name="schema"),
    path("api/docs", public(docs)),
    path("api/tenants/<slug:tenant>/", include(tenant_urls)),
    path("api/operator/", include(operator_urls)),
    path("v1/", include(openai)),
    path("", include("control_plane.gateway.lorax.urls")),
    path("", include(openai.root_urlpatterns)),
]
