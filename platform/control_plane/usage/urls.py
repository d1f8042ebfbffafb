"""Addresses below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.usage import views

urlpatterns = [
    path("usage", views.UsageView.as_view(), name="usage"),
    path("requests", views.RequestsView.as_view(), name="requests"),
]
