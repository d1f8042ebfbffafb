"""Instructor in its modes for tools, JSON and JSON schemas."""

import os
from typing import Annotated

import instructor
from features import ok
from openai import OpenAI
from pydantic import BaseModel, Field

URL, KEY = os.environ["LORIKEET_URL"] + "/v1", os.environ["LORIKEET_KEY"]


class Animal(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    legs: Annotated[int, Field(ge=0, le=8)]


for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(OpenAI(base_url=URL, api_key=KEY, max_retries=0), mode=mode)
    animal = client.chat.completions.create(
        model="lorikeet-demo",
        messages=[{"role": "user", "content": "Tell me about the owl."}],
        response_model=Animal,
        max_retries=0,
        max_tokens=200,
        temperature=0,
    )
    assert isinstance(animal, Animal), mode
ok("tools")
ok("schema")
