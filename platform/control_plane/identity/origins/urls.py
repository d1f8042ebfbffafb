"""URLs of allowed origins below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.identity.origins.views import OriginsView

urlpatterns = [path("origins", OriginsView.as_view(), name="origins")]
