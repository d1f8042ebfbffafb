"""URLs of service level objectives below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.billing.slo import views

urlpatterns = [path("slo", views.SloView.as_view(), name="slo")]
operator_urlpatterns = [
    path("fairness", views.OperatorFairnessView.as_view(), name="operator-fairness"),
    path("tenants/<slug:tenant>/weight", views.OperatorWeightView.as_view(), name="operator-weight"),
]
