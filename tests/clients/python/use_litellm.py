"""LiteLLM's SDK: text, tools and a schema, whole and streamed."""

import json
import os

import litellm
from features import ok

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
ok("text")

choice = litellm.completion(**COMMON, tools=[TOOL], tool_choice="required", parallel_tool_calls=False).choices[0]
assert choice.finish_reason == "tool_calls", choice
assert "city" in json.loads(choice.message.tool_calls[0].function.arguments)
ok("tools")

chunks = list(
    litellm.completion(**COMMON, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, stream=True)
)
whole = litellm.stream_chunk_builder(chunks)
assert "city" in json.loads(whole.choices[0].message.tool_calls[0].function.arguments)
ok("streamed text and calls")

schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": PARAMETERS, "strict": True}}
assert "city" in json.loads(litellm.completion(**COMMON, response_format=schema).choices[0].message.content)
ok("schema")

messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
for _ in range(2):
    answer = litellm.completion(**COMMON | {"model": "openai/tool-caller", "messages": messages}, tools=[TOOL])
    message = answer.choices[0].message
    messages.append(message)
    for call in message.tool_calls or []:
        result = json.dumps({"sky": "sunny", "degrees": 21})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"], messages
ok("agent")

own = {name: COMMON[name] for name in ("model", "api_base", "api_key")}
assert len(litellm.embedding(**own, input=["one", "two"], encoding_format="float").data) == 2
ok("embeddings")
assert litellm.responses(**own, input="Hi", max_output_tokens=20).output
ok("responses")
