"""URLs of LoRAX's API, at the root as in LoRAX."""

from django.urls import path

from control_plane.gateway.lorax import views

urlpatterns = [
    path("generate", views.generate, name="lorax-generate"),
    path("generate_stream", views.generate_stream, name="lorax-generate-stream"),
    path("", views.either, name="lorax"),
]
