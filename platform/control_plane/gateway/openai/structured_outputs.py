"""What holds an answer to a shape: OpenAI's ``response_format``, vLLM's ``structured_outputs`` and ``guided_…``."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from control_plane.gateway.dispatch.constraint_checks import AskedConstraint
from lora_engine.constraints import Constraint, Kind

MOST_CHOICES = 1000
JsonSchema = dict[str, Any]
Choices = Annotated[list[Annotated[str, Field(min_length=1, max_length=4096)]], Field(fail_fast=True)]
Text = Annotated[str, Field(min_length=1)]


class NamedSchema(BaseModel):
    """Without ``strict``, keywords that cannot be enforced are left out; with it, they are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str = Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")
    description: str | None = Field(default=None, max_length=4096)
    schema_: JsonSchema | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @model_validator(mode="after")
    def _schema_with_its_type(self) -> Self:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise ValueError('json_schema belongs to type "json_schema", which needs it')
        return self

    def asked(self) -> AskedConstraint | None:
        if self.type == "text":
            return None
        if self.json_schema is None:
            return AskedConstraint(Constraint(Kind.JSON_OBJECT), "response_format")
        schema = {"type": "object"} if self.json_schema.schema_ is None else self.json_schema.schema_
        best_effort = not self.json_schema.strict
        constraint = Constraint(Kind.JSON_SCHEMA, json.dumps(schema), best_effort)
        return AskedConstraint(constraint, "response_format.json_schema.schema")


class StructuredOutputs(BaseModel):
    """Exactly one of them."""

    model_config = ConfigDict(strict=True, extra="forbid")

    json_: JsonSchema | Text | None = Field(default=None, alias="json")
    regex: Text | None = None
    choice: Choices | None = Field(default=None, min_length=1, max_length=MOST_CHOICES)
    grammar: Text | None = None
    json_object: Literal[True] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError("it needs exactly one of json, regex, choice, grammar and json_object")
        return self

    def asked(self) -> AskedConstraint:
        return AskedConstraint(self._given()[0].constraint, f"structured_outputs.{self._given()[0].param}")

    def _given(self) -> list[AskedConstraint]:
        given = _given(self.json_, self.regex, self.choice, self.grammar, "")
        return given + ([AskedConstraint(Constraint(Kind.JSON_OBJECT), "json_object")] if self.json_object else [])


class ConstraintParameters(BaseModel):
    """The parameters of both endpoints that constrain the answer; at most one of them does."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonSchema | Text | None = None
    guided_regex: Text | None = None
    guided_choice: Choices | None = Field(default=None, min_length=1, max_length=MOST_CHOICES)
    guided_grammar: Text | None = None

    @model_validator(mode="after")
    def _at_most_one_constraint(self) -> Self:
        given = self._asked_constraints
        if len(given) > 1:
            names = " and ".join(asked.param.split(".")[0] for asked in given)
            raise ValueError(f"{names} constrain the same answer; send one of them")
        return self

    @property
    def asked_constraint(self) -> AskedConstraint | None:
        """What the answer is held to, and the parameter that says so."""
        return next(iter(self._asked_constraints), None)

    @cached_property
    def _asked_constraints(self) -> list[AskedConstraint]:
        given = _given(self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar, "guided_")
        if self.structured_outputs is not None:
            given.insert(0, self.structured_outputs.asked())
        if self.response_format is not None and (asked := self.response_format.asked()) is not None:
            given.insert(0, asked)
        return given


def _given(
    schema: JsonSchema | str | None, regex: str | None, choice: list[str] | None, grammar: str | None, prefix: str
) -> list[AskedConstraint]:
    """What of vLLM's four forms is not None."""
    found = []
    if schema is not None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found.append(AskedConstraint(Constraint(Kind.JSON_SCHEMA, text), f"{prefix}json"))
    if regex is not None:
        found.append(AskedConstraint(Constraint(Kind.REGEX, regex), f"{prefix}regex"))
    if choice is not None:
        found.append(AskedConstraint(Constraint(Kind.CHOICE, json.dumps(choice)), f"{prefix}choice"))
    if grammar is not None:
        found.append(AskedConstraint(Constraint(Kind.GRAMMAR, grammar), f"{prefix}grammar"))
    return found
