"""Addresses below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.quotas import views

urlpatterns = [
    path("limits", views.LimitsView.as_view(), name="limits"),
    path("keys/<uuid:key_id>/limits", views.KeyLimitsView.as_view(), name="key-limits"),
]
operator_urlpatterns = [
    path("tenants/<slug:tenant>/limits", views.OperatorLimitsView.as_view(), name="operator-limits")
]
