"""Addresses below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.refusals import views

urlpatterns = [path("refusals", views.RefusalsView.as_view(), name="refusals")]
