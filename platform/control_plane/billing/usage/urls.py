"""URLs of usage below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.billing.usage import views

urlpatterns = [
    path("usage", views.UsageView.as_view(), name="usage"),
    path("series", views.SeriesView.as_view(), name="series"),
    path("series/parts", views.UsagePartsView.as_view(), name="usage-parts"),
    path("requests", views.RequestsView.as_view(), name="requests"),
]
operator_urlpatterns = [path("series", views.OperatorSeriesView.as_view(), name="operator-series")]
