"""HTTP addresses under /v1."""

from django.urls import path

from control_plane.gateway import views

urlpatterns = [
    path("chat/completions", views.chat_completions, name="chat-completions"),
    path("completions", views.completions, name="completions"),
    path("models", views.models, name="models"),
    path("models/<path:name>", views.model, name="model"),
    path("<path:path>", views.not_found, name="v1-not-found"),
]
