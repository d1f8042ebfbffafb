"""pydantic-ai: answers of a type, by a tool and by a schema; streams; an agent by both of OpenAI's APIs."""

import asyncio
import os
from typing import Annotated

from features import ok
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["LORIKEET_URL"] + "/v1", api_key=os.environ["LORIKEET_KEY"])
model = OpenAIChatModel("lorikeet-demo", provider=provider)
SETTINGS = {"max_tokens": 200, "temperature": 0.0}


class Animal(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    legs: Annotated[int, Field(ge=0, le=8)]


async def answers_of_a_type() -> None:
    for output in (ToolOutput(Animal), ToolOutput(Animal, strict=True), NativeOutput(Animal)):
        agent = Agent(model, output_type=output, model_settings=SETTINGS, retries=0)
        assert isinstance((await agent.run("Tell me about the owl.")).output, Animal)
    ok("schema")
    ok("tools")


async def agents() -> None:
    """It calls the tool, reads what that returned, and answers."""
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        agent = Agent(kind("tool-caller", provider=provider), deps_type=list, model_settings={"temperature": 0.0})

        @agent.tool
        def get_weather(context, city: str) -> str:
            """Weather of a city."""
            context.deps.append(city)
            return '{"sky": "sunny", "degrees": 21}'

        asked: list[str] = []
        assert (await agent.run("What is the weather in Oslo?", deps=asked)).output
        assert asked == ["Oslo"], (kind, asked)
    ok("agent")
    ok("responses")


async def streams() -> None:
    agent = Agent(model, output_type=ToolOutput(Animal), model_settings=SETTINGS, retries=0)
    async with agent.run_stream("Tell me about the owl.") as run:
        assert isinstance(await run.get_output(), Animal)
    plain = Agent(model, model_settings=SETTINGS)
    async with plain.run_stream("Who are you?") as run:
        assert await run.get_output()
    ok("text")
    ok("streamed text and calls")


async def main() -> None:
    await answers_of_a_type()
    await agents()
    await streams()


asyncio.run(main())
