"""openai-python: tools whole and streamed, the helpers for parsed tools and answers, a loop of calls."""

import json
import os
from typing import Annotated

import openai
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

with client.chat.completions.stream(
    **COMMON, tools=[TOOL], tool_choice="required", parallel_tool_calls=False
) as stream:
    pieces = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
    done = stream.get_final_completion().choices[0]
assert len(pieces) > 1, "arguments come in pieces"
assert isinstance(done.message.tool_calls[0].function.parsed_arguments, GetWeather)

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


class City(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    big: bool


answer = client.chat.completions.parse(**COMMON, response_format=City).choices[0].message
assert isinstance(answer.parsed, City)
both = client.chat.completions.parse(**COMMON, response_format=City, tools=[TOOL]).choices[0].message
assert both.parsed is not None or both.tool_calls
