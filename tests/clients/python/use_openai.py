"""openai-python: tools whole and streamed, the helpers for parsed tools and answers, a loop of calls."""

import json
import os
import time
from typing import Annotated

import openai
from features import ok
from openai import OpenAI
from pydantic import BaseModel, Field

MODEL = "lorikeet-demo"
client = OpenAI(base_url=os.environ["LORIKEET_URL"] + "/v1", api_key=os.environ["LORIKEET_KEY"], max_retries=0)


class GetWeather(BaseModel):
    """Weather of a city."""

    city: Annotated[str, Field(max_length=16)]


TOOL = openai.pydantic_function_tool(GetWeather)
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
COMMON = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 200}

parsed = client.chat.completions.parse(
    **COMMON, tools=[TOOL], tool_choice="required", parallel_tool_calls=False
).choices[0]
assert parsed.finish_reason == "tool_calls"
assert isinstance(parsed.message.tool_calls[0].function.parsed_arguments, GetWeather)
ok("tools")

with client.chat.completions.stream(
    **COMMON, tools=[TOOL], tool_choice="required", parallel_tool_calls=False
) as stream:
    pieces = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
    done = stream.get_final_completion().choices[0]
assert len(pieces) > 1, "arguments come in pieces"
assert isinstance(done.message.tool_calls[0].function.parsed_arguments, GetWeather)
ok("streamed text and calls")

messages = list(QUESTION)
for choice in ("required", "none"):
    turn = client.chat.completions.create(
        **COMMON | {"messages": messages}, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False
    )
    message = turn.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        result = {"city": json.loads(call.function.arguments)["city"], "sky": "rainy"}
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
assert messages[-1]["role"] == "assistant" and messages[-1]["content"]
ok("text")
ok("agent")


class City(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    big: bool


answer = client.chat.completions.parse(**COMMON, response_format=City).choices[0].message
assert isinstance(answer.parsed, City)
both = client.chat.completions.parse(**COMMON, response_format=City, tools=[TOOL]).choices[0].message
assert both.parsed is not None or both.tool_calls
ok("schema")

response = client.responses.parse(model=MODEL, input="Which city?", text_format=City, max_output_tokens=200)
assert isinstance(response.output_parsed, City)
with client.responses.stream(model=MODEL, input="Hi", max_output_tokens=20) as events:
    assert {"response.created", "response.output_text.delta", "response.completed"} <= {event.type for event in events}
    final = events.get_final_response()
counted = client.responses.input_tokens.count(model=MODEL, input="Hi")
assert counted.input_tokens == final.usage.input_tokens
[asked] = client.responses.input_items.list(final.id)
referred = client.responses.create(
    model=MODEL,
    input=[{"type": "item_reference", "id": item.id} for item in (asked, *final.output)]
    + [{"role": "user", "content": "Go on."}],
    max_output_tokens=5,
)
assert referred.usage.input_tokens > counted.input_tokens
compacted = client.responses.compact(model=MODEL, previous_response_id=final.id, input="Go on.")
assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
again = [item.model_dump(exclude_none=True, warnings=False) for item in compacted.output]
client.responses.create(model=MODEL, input=[*again, {"role": "user", "content": "Hi"}], max_output_tokens=5)
ok("responses")

assert [len(row.embedding) for row in client.embeddings.create(model=MODEL, input=["a", "b"], dimensions=8).data] == [
    8,
    8,
]
ok("embeddings")

line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": COMMON}
file = client.files.create(file=("requests.jsonl", json.dumps(line).encode()), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
)  # fmt: skip
while batch.status in ("validating", "in_progress", "finalizing"):
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)
assert json.loads(client.files.content(batch.output_file_id).text)["custom_id"] == "a", batch
client.files.delete(file.id)
ok("files and batches")
