"""/v1 as clients of OpenAI know it: requests, answers, server-sent events."""
