"""Compaction of a conversation: instructions and the user's messages stay, the rest becomes the model's summary."""

from __future__ import annotations

from typing import Any

from control_plane.billing.usage.request_ids import public_part
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.generation import Generation
from control_plane.gateway.openai.chat_request import ChatCompletionRequest, ChatMessage
from control_plane.gateway.openai.response_writers import Choice
from control_plane.gateway.responses.conversation import Conversation
from control_plane.gateway.responses.items import compaction_item
from control_plane.gateway.responses.response_writers import usage_of

Json = dict[str, Any]
# Tokens of a summary, at most.
SUMMARY_TOKENS = 2048
# The request for a summary, as the last message of the user.
PROMPT = (
    "Summarise this conversation so that it can be continued from the summary alone. Name the goal, decisions and "
    "their reasons, facts, names, numbers and file paths that still matter, what tools returned, what is done, and "
    "what is open. Answer with the summary only."
)
_KEPT = ("system", "developer", "user")


def summary_request(chat: ChatCompletionRequest) -> ChatCompletionRequest:
    """Return the request for a summary of a chat. It follows in the user's last message, if the chat ends with that:
    some chat templates allow no two messages of the user in a row.
    """
    messages = list(chat.messages)
    text = PROMPT
    if messages[-1].role == "user":
        text = f"{messages.pop().text}\n\n{PROMPT}"
    messages.append(ChatMessage(role="user", content=text))
    chat.messages = messages
    chat.max_completion_tokens = SUMMARY_TOKENS
    return chat


def compacted(generation: Generation, conversation: Conversation, choice: Choice) -> Json:
    """Return the compacted conversation. Raises ``ApiError`` if the model wrote nothing."""
    if not choice.text.strip():
        raise ApiError(
            500, "empty_summary", "The model wrote no summary of the conversation.", "Send the request again."
        )
    response = public_part(generation.request_id)
    kept = [row for row in conversation.listed(response) if row["type"] == "message" and row["role"] in _KEPT]
    return {
        "id": f"resp_{response}",
        "object": "response.compaction",
        "created_at": generation.created,
        "output": [*kept, compaction_item(choice.text.strip(), f"cmp_{response}")],
        "usage": usage_of(generation),
    }
