"""URLs of the OpenAI-compatible API under /v1, and of vLLM's API, at the root as in vLLM."""

from django.urls import path, re_path

from control_plane.gateway.anthropic import views as anthropic
from control_plane.gateway.openai import batch_views, embeddings, tokenizing, views
from control_plane.gateway.responses import views as responses

urlpatterns = [
    path("chat/completions", views.chat_completions, name="chat-completions"),
    path("completions", views.completions, name="completions"),
    path("embeddings", embeddings.embeddings, name="embeddings"),
    path("files", batch_views.file_list, name="files"),
    path("files/<str:name>", batch_views.file, name="file"),
    path("files/<str:name>/content", batch_views.file_content, name="file-content"),
    path("batches", batch_views.batch_list, name="batches"),
    path("batches/<str:name>", batch_views.batch, name="batch"),
    path("batches/<str:name>/cancel", batch_views.batch_cancel, name="batch-cancel"),
    path("responses", responses.responses, name="responses"),
    path("responses/input_tokens", responses.input_tokens, name="input-tokens"),
    path("responses/compact", responses.compact, name="compact"),
    path("responses/<str:name>", responses.response, name="response"),
    path("responses/<str:name>/input_items", responses.input_items, name="input-items"),
    path("messages", anthropic.messages, name="messages"),
    path("messages/count_tokens", anthropic.message_tokens, name="message-tokens"),
    path("models", views.models, name="models"),
    path("models/<path:name>", views.model, name="model"),
    # A regular expression, because a path converter matches no line breaks.
    re_path(r"^(?s:.*)$", views.not_found, name="v1-not-found"),
]
root_urlpatterns = [
    *(
        path(name, views.without_version, name=f"without-version-{name.replace('/', '-')}")
        for name in ("chat/completions", "completions", "embeddings", "responses", "messages")
    ),
    path("openai/<path:rest>", views.unknown_azure_url, name="unknown-azure-url"),
    path("tokenize", tokenizing.tokenize, name="tokenize"),
    path("detokenize", tokenizing.detokenize, name="detokenize"),
]
