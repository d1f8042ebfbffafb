"""Fields of request bodies that are not served: which are left out, and which are refused by name.

Clients of other servers send fields of their own. A field that does not change the answer is left out and named to the
client. One that is close to a served field is a mistake in spelling, and one that other servers use to choose tokens
would change the answer: both are refused.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, PrivateAttr

from control_plane.gateway.dispatch.errors import ApiError

# Parameters accepted with any value and ignored: they do not affect the text, or are hints that may be ignored. The
# table in docs/api.md gives the reason for each.
HARMLESS = frozenset(
    {
        "chat_id",
        "client_metadata",
        "metadata",
        "models",
        "plugins",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "provider",
        "route",
        "safety_identifier",
        "service_tier",
        "session_id",
        "store",
        "stream_interval",
        "transforms",
        "user",
        "verbosity",
    }
)
# Parameters with which other servers choose tokens, adapters or the prompt: refused unless they have one of these
# values, which change nothing.
OF_OTHER_SERVERS: Mapping[str, tuple[Any, ...]] = {
    "adapter_id": (),
    "custom_logit_processor": (),
    "do_sample": (True,),
    "dry_allowed_length": (0, 2),
    "dry_base": (0, 1.75),
    "dry_multiplier": (0,),
    "dry_penalty_last_n": (0, -1),
    "dry_sequence_breakers": ([],),
    "dynatemp_exponent": (1,),
    "dynatemp_range": (0,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "extra_body": ({},),
    "guidance_scale": (1,),
    "images": ([],),
    "logits_processors": ([],),
    "lora_path": (),
    "lora_request": (),
    "mirostat": (0,),
    "mirostat_eta": (0.1,),
    "mirostat_mode": (0,),
    "mirostat_tau": (5,),
    "negative_prompt": ("",),
    "no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "options": ({},),
    "penalty_alpha": (0,),
    "repeat_last_n": (),
    "safe_prompt": (False,),
    "samplers": (),
    "smoothing_factor": (0,),
    "suppress_tokens": ([],),
    "tfs_z": (1,),
    "top_a": (0,),
    "top_n_sigma": (0, -1),
    "typical_p": (1,),
    "xtc_probability": (0,),
    "xtc_threshold": (0, 0.1),
}
# Names that other APIs have for served fields: of several, the first that the body has is meant.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("max_tokens", "max_output_tokens", "max_completion_tokens", "max_new_tokens", "max_gen_len", "n_predict",
         "num_predict"),
        ("max_output_tokens", "max_completion_tokens", "max_tokens"),
    ),
    **dict.fromkeys(("stop", "stop_sequences", "stop_strings"), ("stop", "stop_sequences")),
    "random_seed": ("seed",),
    "repeat_penalty": ("repetition_penalty",),
    "temp": ("temperature",),
    "min_new_tokens": ("min_tokens",),
    **dict.fromkeys(("num_return_sequences", "candidate_count", "num_completions"), ("n",)),
    **dict.fromkeys(
        ("json_schema", "response_schema", "output_format", "output_config", "format", "response_format"),
        ("text", "response_format", "output_config"),
    ),
    **dict.fromkeys(("grammar", "regex", "ebnf"), ("structured_outputs",)),
    **dict.fromkeys(
        ("system", "system_prompt", "system_instruction"), ("instructions", "system", "messages", "prompt")
    ),
    **dict.fromkeys(("inputs", "messages", "prompt"), ("input", "messages", "prompt")),
    **dict.fromkeys(("input_schema", "parameters"), ("parameters", "input_schema")),
    "reasoning_effort": ("reasoning",),
}  # fmt: skip
# Fields in which unknown names are refused: what they hold decides which answers are possible.
STRICT_INSIDE = frozenset({"output_format", "response_format", "structured_outputs", "text", "tool_choice"})
# Likeness of two names, 0 to 1, from which one of them is taken for a misspelling of the other.
CLOSE = 0.84
# Shortest name that may be a misspelling.
SHORTEST_CLOSE = 4
# Maximum number of names that one answer reports, and of the characters of each.
MAX_IGNORED, LONGEST_IGNORED = 16, 64
_PLAIN_NAME = re.compile(r"[\w.\[\]-]+", re.ASCII)


class RequestBody(BaseModel):
    """A request body of which unknown fields may be left out; ``ignored`` names those."""

    model_config = ConfigDict(strict=True, extra="forbid")

    _ignored: tuple[str, ...] = PrivateAttr(default=())
    _refuses_unknown: bool = PrivateAttr(default=False)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Fields of the request that were left out, as the client sent them."""
        return self._ignored

    @property
    def refuses_unknown(self) -> bool:
        """True if the tenant chose that requests with unknown fields are refused."""
        return self._refuses_unknown

    @property
    def optional(self) -> Mapping[str, str]:
        """Fields that are left out too if the model's chat template reads none of them: by the engine's name of the
        parameter, the name that the client sent.
        """
        return {}

    def require_served_size(self) -> None:
        """Raise ``ApiError`` for a request that is larger than the installation serves."""

    def in_sent_terms(self, error: ApiError) -> ApiError:
        """Return an engine's error with the names of fields that the client sent."""
        return error

    def note_ignored(self, names: Iterable[str], *, refuses_unknown: bool = False) -> None:
        self._ignored = tuple(dict.fromkeys((*self._ignored, *names)))[:MAX_IGNORED]
        self._refuses_unknown = self._refuses_unknown or refuses_unknown


@dataclass(frozen=True)
class UnknownField:
    """A field that a request has and its model lacks."""

    name: str
    # The path of the object that has it, exactly and without positions in lists: `messages[3].`, `messages[].`.
    within: str
    shown_within: str
    # Names that this object may have.
    known: Collection[str]

    @property
    def param(self) -> str:
        return self.within + self.name

    @property
    def shown(self) -> str:
        """The name for a header and the ledger: plain ASCII, of bounded length."""
        text = self.shown_within + self.name
        return (text if _PLAIN_NAME.fullmatch(text) else json.dumps(text))[:LONGEST_IGNORED]

    @property
    def is_strict(self) -> bool:
        return re.split(r"[.\[]", self.within, maxsplit=1)[0] in STRICT_INSIDE


def take_unknown(model: BaseModel) -> list[UnknownField]:
    """Remove the unknown fields of a model that was validated with ``extra="allow"``, and return them.

    Models that ignore further fields by themselves lose theirs without mention.
    """
    return list(_take(model, "", ""))


def _take(value: object, within: str, shown: str) -> Iterator[UnknownField]:
    if isinstance(value, BaseModel):
        kind = type(value)
        if extra := value.__pydantic_extra__:
            if kind.model_config.get("extra") == "forbid":
                known = names_of(kind)
                yield from (UnknownField(name, within, shown, known) for name in extra)
            object.__setattr__(value, "__pydantic_extra__", None)
        for name, field in kind.model_fields.items():
            label = field.alias or name
            yield from _take_inside(getattr(value, name), within + label, shown + label)


def _take_inside(value: object, path: str, shown: str) -> Iterator[UnknownField]:
    if isinstance(value, BaseModel):
        yield from _take(value, f"{path}.", f"{shown}.")
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        for index, item in enumerate(value):
            yield from _take(item, f"{path}[{index}].", f"{shown}[].")


def names_of(kind: type[BaseModel]) -> frozenset[str]:
    """Return the names of a model's fields in JSON."""
    return frozenset(field.alias or name for name, field in kind.model_fields.items())


def meant_name(name: str, known: Collection[str]) -> str | None:
    """Return the known name that an unknown one probably stands for."""
    for synonym in _SYNONYMS.get(name, ()):
        if synonym in known:
            return synonym
    by_letters = {_letters(other): other for other in known}
    letters = _letters(name)
    if letters in by_letters:
        return by_letters[letters]
    if len(letters) < SHORTEST_CLOSE or len(name) > LONGEST_IGNORED:
        return None
    close = difflib.get_close_matches(letters, by_letters, n=1, cutoff=CLOSE)
    return by_letters[close[0]] if close else None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
