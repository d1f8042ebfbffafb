"""URLs of refused requests' counts below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.billing.refusals import views

urlpatterns = [
    path("refusals", views.RefusalsView.as_view(), name="refusals"),
    path("refusals/series", views.RefusalSeriesView.as_view(), name="refusal-series"),
]
operator_urlpatterns = [
    path("refusals/series", views.OperatorRefusalSeriesView.as_view(), name="operator-refusal-series")
]
