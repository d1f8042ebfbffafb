"""LiteLLM's SDK: text, tools and a schema, whole and streamed."""

import json
import os

import litellm

COMMON = {
    "model": "openai/lorikeet-demo",
    "api_base": os.environ["LORIKEET_URL"] + "/v1",
    "api_key": os.environ["LORIKEET_KEY"],
    "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
    "max_tokens": 200,
    "temperature": 0,
}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 16}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}

assert litellm.completion(**COMMON).choices[0].message.content

choice = litellm.completion(**COMMON, tools=[TOOL], tool_choice="required", parallel_tool_calls=False).choices[0]
assert choice.finish_reason == "tool_calls", choice
assert "city" in json.loads(choice.message.tool_calls[0].function.arguments)

chunks = list(
    litellm.completion(**COMMON, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, stream=True)
)
whole = litellm.stream_chunk_builder(chunks)
assert "city" in json.loads(whole.choices[0].message.tool_calls[0].function.arguments)

schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": PARAMETERS, "strict": True}}
assert "city" in json.loads(litellm.completion(**COMMON, response_format=schema).choices[0].message.content)
