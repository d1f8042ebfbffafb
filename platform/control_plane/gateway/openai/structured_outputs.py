"""Parameters that constrain an answer: OpenAI's ``response_format``, vLLM's ``structured_outputs`` and ``guided_…``."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from control_plane.gateway.dispatch.constraint_checks import RequestedConstraint
from control_plane.gateway.openai.unknown_fields import RequestBody
from control_plane.gateway.openai.validation_texts import NAME_PATTERN
from lora_engine.constraints import Constraint, Kind

# Maximum number of texts to choose from in one constraint.
MAX_CHOICES = 1000
JsonSchema = dict[str, Any]
Choices = Annotated[list[Annotated[str, Field(min_length=1, max_length=4096)]], Field(fail_fast=True)]
Text = Annotated[str, Field(min_length=1)]


class NamedSchema(BaseModel):
    """A JSON Schema with a name. Keywords that cannot be enforced are ignored, or with ``strict`` refused."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str = Field(min_length=1, max_length=64, pattern=NAME_PATTERN)
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
            raise ValueError('json_schema and type "json_schema" need each other; send both or neither')
        return self

    def requested_constraint(self) -> RequestedConstraint | None:
        if self.type == "text":
            return None
        if self.json_schema is None:
            return RequestedConstraint(Constraint(Kind.JSON_OBJECT), "response_format")
        schema = {"type": "object"} if self.json_schema.schema_ is None else self.json_schema.schema_
        best_effort = not self.json_schema.strict
        constraint = Constraint(Kind.JSON_SCHEMA, json.dumps(schema), best_effort)
        return RequestedConstraint(constraint, "response_format.json_schema.schema")


class StructuredOutputs(BaseModel):
    """vLLM's ``structured_outputs``, which has exactly one of these fields."""

    model_config = ConfigDict(strict=True, extra="forbid")

    json_: JsonSchema | Text | None = Field(default=None, alias="json")
    regex: Text | None = None
    choice: Choices | None = Field(default=None, min_length=1, max_length=MAX_CHOICES)
    grammar: Text | None = None
    json_object: Literal[True] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self._constraints()) != 1:
            raise ValueError("it needs exactly one of json, regex, choice, grammar and json_object; send one of them")
        return self

    def requested_constraint(self) -> RequestedConstraint:
        [requested] = self._constraints()
        return RequestedConstraint(requested.constraint, f"structured_outputs.{requested.param}")

    def _constraints(self) -> list[RequestedConstraint]:
        constraints = _constraints(self.json_, self.regex, self.choice, self.grammar, "")
        if self.json_object:
            constraints.append(RequestedConstraint(Constraint(Kind.JSON_OBJECT), "json_object"))
        return constraints


class ConstraintParameters(RequestBody):
    """Parameters of both endpoints that constrain the answer; at most one may be sent."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonSchema | Text | None = None
    guided_regex: Text | None = None
    guided_choice: Choices | None = Field(default=None, min_length=1, max_length=MAX_CHOICES)
    guided_grammar: Text | None = None

    @model_validator(mode="after")
    def _at_most_one_constraint(self) -> Self:
        constraints = self._requested_constraints
        if len(constraints) > 1:
            names = " and ".join(requested.param.split(".")[0] for requested in constraints)
            raise ValueError(f"{names} constrain the same answer; send one of them")
        return self

    @property
    def requested_constraint(self) -> RequestedConstraint | None:
        """The constraint of the answer, with its parameter."""
        return next(iter(self._requested_constraints), None)

    @cached_property
    def _requested_constraints(self) -> list[RequestedConstraint]:
        constraints = _constraints(
            self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar, "guided_"
        )
        if self.structured_outputs is not None:
            constraints.insert(0, self.structured_outputs.requested_constraint())
        if self.response_format is not None and (requested := self.response_format.requested_constraint()) is not None:
            constraints.insert(0, requested)
        return constraints


def _constraints(
    schema: JsonSchema | str | None, regex: str | None, choice: list[str] | None, grammar: str | None, prefix: str
) -> list[RequestedConstraint]:
    """Return the constraints among vLLM's four forms that are set."""
    constraints = []
    if schema is not None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        constraints.append(RequestedConstraint(Constraint(Kind.JSON_SCHEMA, text), f"{prefix}json"))
    if regex is not None:
        constraints.append(RequestedConstraint(Constraint(Kind.REGEX, regex), f"{prefix}regex"))
    if choice is not None:
        constraints.append(RequestedConstraint(Constraint(Kind.CHOICE, json.dumps(choice)), f"{prefix}choice"))
    if grammar is not None:
        constraints.append(RequestedConstraint(Constraint(Kind.GRAMMAR, grammar), f"{prefix}grammar"))
    return constraints
