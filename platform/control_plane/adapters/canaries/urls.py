"""URLs of canaries below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.adapters.canaries.views import CanaryView

urlpatterns = [path("adapters/<str:name>/aliases/<str:alias>/canary", CanaryView.as_view(), name="alias-canary")]
