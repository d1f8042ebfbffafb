"""`/v1/messages`: Anthropic's form of a conversation, over the generation of `/v1/chat/completions`."""
