"""`/v1/responses`: OpenAI's newer form of a conversation, over the generation of `/v1/chat/completions`."""
