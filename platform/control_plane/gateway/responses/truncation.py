"""``truncation: "auto"``: drop the oldest messages of a conversation that exceeds the model's context."""

from __future__ import annotations

from collections.abc import Sequence

from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.openai.chat_request import ChatCompletionRequest, ChatMessage
from control_plane.gateway.openai.tokenizing import count_tokens

# Share of the context that is kept free for the answer, at most, if the request sets no limit for it.
FREE_SHARE = 0.25
# Tokens that are kept free for an answer without a limit, if the context is large.
FREE_TOKENS = 1024
_INSTRUCTIONS = ("system", "developer")


async def fitting(admission: Admission, chat: ChatCompletionRequest) -> list[ChatMessage]:
    """Return the messages of ``chat`` without as many of the oldest as do not fit into the context.

    Instructions at the beginning are kept, and so is the last message that is not a tool's result. If these alone do
    not fit, the engine refuses the request. Raises ``HostError`` if the engine cannot render the messages.
    """
    messages = chat.messages
    tokens, context = await count_chat(admission, chat)
    wanted = chat.max_completion_tokens or min(FREE_TOKENS, int(context * FREE_SHARE))
    room = context - min(wanted, context // 2)
    if tokens <= room:
        return messages
    head = next((at for at, message in enumerate(messages) if message.role not in _INSTRUCTIONS), len(messages))
    starts = _starts(messages, head)
    low, high = 0, len(starts) - 1  # `starts[high]` is used if nothing fits
    while low < high:
        middle = (low + high) // 2
        shorter = chat.model_copy(update={"messages": [*messages[:head], *messages[starts[middle] :]]})
        tokens, _ = await count_chat(admission, shorter)
        if tokens <= room:
            high = middle
        else:
            low = middle + 1
    return [*messages[:head], *messages[starts[low] :]] if starts else messages


async def count_chat(admission: Admission, chat: ChatCompletionRequest) -> tuple[int, int]:
    """Return the tokens of a chat's prompt, and the model's context. Raises ``HostError``."""
    [submit] = chat.submits()
    submit.chat.reasoning_effort = ""  # the chat template may lack it, which the request itself may not mind
    return await count_tokens(admission, submit)


def _starts(messages: Sequence[ChatMessage], head: int) -> list[int]:
    """Return where a shorter conversation may begin: at no tool's result, whose call would be missing."""
    users = [at for at in range(head + 1, len(messages)) if messages[at].role == "user"]
    after_users = range(users[-1] + 1 if users else head + 1, len(messages))
    return users + [at for at in after_users if messages[at].role != "tool"]
