"""vLLM's addresses, at the root as there."""

from django.urls import path

from control_plane.gateway.openai import tokenizing

urlpatterns = [
    path("tokenize", tokenizing.tokenize, name="tokenize"),
    path("detokenize", tokenizing.detokenize, name="detokenize"),
]
