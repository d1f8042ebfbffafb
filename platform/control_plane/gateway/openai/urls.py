"""HTTP addresses under /v1."""

from django.urls import path, re_path

from control_plane.gateway.openai import views

urlpatterns = [
    path("chat/completions", views.chat_completions, name="chat-completions"),
    path("completions", views.completions, name="completions"),
    path("models", views.models, name="models"),
    path("models/<path:name>", views.model, name="model"),
    # Whatever it is: a path converter takes no line breaks.
    re_path(r"^(?s:.*)$", views.not_found, name="v1-not-found"),
]
