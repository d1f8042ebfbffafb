"""LangChain: bind_tools, a call that streams, an agent, embeddings, and with_structured_output by its three methods."""

import os
from typing import Annotated

from features import ok
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

model = ChatOpenAI(
    model="lorikeet-demo",
    base_url=os.environ["LORIKEET_URL"] + "/v1",
    api_key=os.environ["LORIKEET_KEY"],
    temperature=0,
    max_tokens=200,
    max_retries=0,
)


@tool
def get_weather(city: Annotated[str, Field(max_length=16)]) -> str:
    """Weather of a city."""
    return f"rainy in {city}"


for choice in ("any", "get_weather"):
    asked = model.bind_tools([get_weather], tool_choice=choice).invoke("What is the weather in Oslo?")
    assert asked.tool_calls and asked.tool_calls[0]["name"] == "get_weather", asked
assert not asked.invalid_tool_calls

call = asked.tool_calls[0]
result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
history = [HumanMessage("What is the weather in Oslo?"), asked, result]
assert model.bind_tools([get_weather]).invoke(history).content
ok("text")
ok("tools")

gathered = None
for chunk in model.bind_tools([get_weather], tool_choice="any", strict=True).stream("And in Rome?"):
    gathered = chunk if gathered is None else gathered + chunk
assert gathered is not None and gathered.tool_calls[0]["args"]["city"] is not None, gathered
ok("streamed text and calls")


class Animal(BaseModel):
    """An animal."""

    name: Annotated[str, Field(max_length=12)]
    legs: int = Field(ge=0, le=8)


for method, strict in (("function_calling", None), ("function_calling", True), ("json_schema", None)):
    structured = model.with_structured_output(Animal, method=method, **({"strict": strict} if strict else {}))
    assert isinstance(structured.invoke("Tell me about the owl."), Animal), method
written = model.with_structured_output(None, method="json_mode").invoke("Tell me about the owl, as JSON.")
assert isinstance(written, dict), written
ok("schema")

# An agent: it calls the tool, reads what that returned, and answers.
agent = create_agent(model.model_copy(update={"model_name": "tool-caller"}), [get_weather])
turns = agent.invoke({"messages": [HumanMessage("What is the weather in Oslo?")]})["messages"]
assert [turn.type for turn in turns] == ["human", "ai", "tool", "ai"], turns
assert "Oslo" in turns[2].content and turns[3].content, turns
ok("agent")

assert len(model.batch(["One", "Two", "Three"])) == 3
embeddings = OpenAIEmbeddings(
    model="lorikeet-demo", base_url=model.openai_api_base, api_key=os.environ["LORIKEET_KEY"],
    check_embedding_ctx_length=False,
)  # fmt: skip
vectors = embeddings.embed_documents(["one", "two"])
assert len(vectors) == 2 and vectors[0] != vectors[1]
ok("embeddings")
