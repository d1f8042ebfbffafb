"""URLs of vLLM's API, at the root as in vLLM."""

from django.urls import path

from control_plane.gateway.openai import tokenizing

urlpatterns = [
    path("tokenize", tokenizing.tokenize, name="tokenize"),
    path("detokenize", tokenizing.detokenize, name="detokenize"),
]
