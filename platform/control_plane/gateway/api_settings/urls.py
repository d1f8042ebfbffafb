"""URLs of API settings below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.gateway.api_settings.views import ApiSettingsView

urlpatterns = [path("api-settings", ApiSettingsView.as_view(), name="api-settings")]
