"""pydantic-ai: answers of a type, by a tool and by a schema; streamed too."""

import asyncio
import os
from typing import Annotated

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["LORIKEET_URL"] + "/v1", api_key=os.environ["LORIKEET_KEY"])
model = OpenAIChatModel("lorikeet-demo", provider=provider)
SETTINGS = {"max_tokens": 200, "temperature": 0.0}


class Animal(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    legs: Annotated[int, Field(ge=0, le=8)]


for output in (ToolOutput(Animal), ToolOutput(Animal, strict=True), NativeOutput(Animal)):
    agent = Agent(model, output_type=output, model_settings=SETTINGS, retries=0)
    assert isinstance(agent.run_sync("Tell me about the owl.").output, Animal)


async def streamed() -> None:
    agent = Agent(model, output_type=ToolOutput(Animal), model_settings=SETTINGS, retries=0)
    async with agent.run_stream("Tell me about the owl.") as run:
        assert isinstance(await run.get_output(), Animal)
    plain = Agent(model, model_settings=SETTINGS)
    async with plain.run_stream("Who are you?") as run:
        assert await run.get_output()


asyncio.run(streamed())
