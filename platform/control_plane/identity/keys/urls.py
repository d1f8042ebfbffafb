"""URLs of API keys below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.identity.keys import views

urlpatterns = [
    path("keys", views.KeysView.as_view(), name="keys"),
    path("keys/<uuid:key_id>", views.KeyView.as_view(), name="key"),
    path("keys/<uuid:key_id>/rotate", views.RotationView.as_view(), name="rotate-key"),
]
