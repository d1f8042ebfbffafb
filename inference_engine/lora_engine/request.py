"""The engine's inputs and outputs: requests with sampling parameters, deltas and outcomes.

They are plain data without tensors or protobuf: the server converts messages into them, and benchmarks and tests build
them directly.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from .errors import RequestError

if TYPE_CHECKING:
    from .structured import Grammar

# Most likely tokens whose log-probabilities are returned for each token, as in OpenAI's API.
MAX_TOP_LOGPROBS = 20
# Maximum number of choices of one request, as in OpenAI's API.
MAX_CHOICES = 128


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling parameters of a request, with OpenAI's meanings and ranges where it has them.

    ``max_tokens`` 0 means up to the context limit; ``temperature`` 0 means greedy; ``top_k`` 0 and ``min_p`` 0 mean
    off. Before ``min_tokens`` no token and no string ends the answer.
    """

    max_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    ignore_eos: bool = False
    logit_bias: dict[int, float] = field(default_factory=dict)
    include_stop: bool = False
    min_tokens: int = 0
    keep_special_tokens: bool = False

    @property
    def penalises(self) -> bool:
        """True if some penalty makes the logits depend on earlier tokens."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)

    @property
    def plain_greedy(self) -> bool:
        """True if the next token is the argmax, without requested log-probabilities."""
        return not (self.temperature or self.logprobs or self.penalises or self.logit_bias or self.min_tokens)

    def validate(self, vocab_size: int) -> None:
        """Raise ``RequestError`` naming the first parameter out of range."""
        for name, low, high in (
            ("temperature", 0.0, 2.0),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("presence_penalty", -2.0, 2.0),
            ("frequency_penalty", -2.0, 2.0),
            ("repetition_penalty", 0.01, 10.0),
            ("top_logprobs", 0, MAX_TOP_LOGPROBS),
            ("n", 1, MAX_CHOICES),
        ):
            value = getattr(self, name)
            if not min(low, _float32(low)) <= value <= high:  # also catches NaN
                raise RequestError(
                    "invalid_value",
                    f"{name} is {value}, but must be between {low} and {high}.",
                    f"Send a {name} from {low} to {high}.",
                    param=name,
                )
        if self.max_tokens and self.min_tokens > self.max_tokens:
            raise RequestError(
                "invalid_value",
                f"min_tokens is {self.min_tokens}, but max_tokens is {self.max_tokens}.",
                "Send a min_tokens that is no larger than max_tokens.",
                param="min_tokens",
            )
        if self.top_p == 0.0:
            raise RequestError(
                "invalid_value", "top_p is 0, which keeps no token.", "Send a top_p above 0.", param="top_p"
            )
        for name, ids in (("stop_token_ids", self.stop_token_ids), ("logit_bias", self.logit_bias)):
            for token_id in ids:
                if not 0 <= token_id < vocab_size:
                    raise RequestError(
                        "invalid_value",
                        f"{name} holds token id {token_id}, but the vocabulary has {vocab_size} tokens.",
                        f"Use token ids from 0 to {vocab_size - 1}.",
                        param=name,
                    )
        for token_id, bias in self.logit_bias.items():
            if not -100.0 <= bias <= 100.0:
                raise RequestError(
                    "invalid_value",
                    f"logit_bias of token {token_id} is {bias}, but must be between -100 and 100.",
                    "Send biases from -100 to 100.",
                    param="logit_bias",
                )


@dataclass(frozen=True, slots=True)
class Slo:
    """The service-level objectives of a request; 0 means none.

    ``weight`` is the tenant's fair-share weight, ``max_running`` the maximum number of its running sequences.
    ``priority`` orders requests within the tenant, higher first. A request that still waits after ``deadline_ms`` is
    refused. A ``background`` request runs only while no other request of any tenant waits.
    """

    first_token_ms: int = 0
    inter_token_ms: int = 0
    weight: float = 1.0
    priority: int = 0
    deadline_ms: int = 0
    max_running: int = 0
    background: bool = False


class PoolingKind(Enum):
    LAST = "last"  # the last token's hidden state
    MEAN = "mean"  # the mean over all tokens


@dataclass(frozen=True, slots=True)
class Pooling:
    """The pooling of a prompt's hidden states after the last norm to one vector of length 1.

    With fewer ``dimensions`` than the model's, the first ones are used; 0 means all.
    """

    kind: PoolingKind
    dimensions: int = 0


@dataclass(frozen=True, slots=True)
class ChoiceSoFar:
    """The tokens of a choice that another host generated before it was lost."""

    choice: int
    token_ids: list[int]
    finished: bool = False  # nothing comes after it


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request to continue one prompt, ``sampling.n`` times.

    ``adapter_digest`` is an adapter's content digest, or "" for the base model. ``continues_text``: the output
    continues the prompt's text (a completion, not a chat message), so that a leading space is part of it. ``grammar``
    constrains the answer; the engine's ``grammars`` compile it. ``shown_special_ids`` are special tokens that appear in
    the text.

    With ``prompt_only`` nothing is generated. ``prompt_logprobs`` requests the log-probabilities of the prompt's
    tokens, each with so many of the most likely ones; ``most_prompt_logprobs`` bounds their total (0: no bound).
    ``pooling`` requests a vector of the prompt, and of each of ``more_prompts`` as a separate choice.

    Requests of a tenant share cached prefixes only if they have the same ``cache_salt``. ``pin`` names the pinned
    prefix that the request computes.

    ``so_far`` is the existing part of a resumed answer. A greedy or seeded request then continues exactly as an
    undisturbed run would have.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams = SamplingParams()
    adapter_digest: str = ""
    tenant: str = ""
    slo: Slo = Slo()
    continues_text: bool = False
    prompt_only: bool = False
    prompt_logprobs: int | None = None
    most_prompt_logprobs: int = 0
    pooling: Pooling | None = None
    more_prompts: tuple[list[int], ...] = ()
    grammar: Grammar | None = None
    shown_special_ids: frozenset[int] = frozenset()
    so_far: tuple[ChoiceSoFar, ...] = ()
    cache_salt: str = ""
    pin: str = ""

    @property
    def prompts(self) -> list[list[int]]:
        """The prompt of each choice."""
        return [self.prompt_token_ids] * self.sampling.n + [*self.more_prompts]

    @property
    def largest_token_id(self) -> int:
        """Largest of all token ids in the request."""
        answers = [part.token_ids for part in self.so_far]
        sampling = self.sampling
        lists = (self.prompt_token_ids, *self.more_prompts, *answers, sampling.stop_token_ids, sampling.logit_bias)
        return max((max(ids) for ids in lists if ids), default=0)


def _float32(number: float) -> float:
    """Return a number as it comes from the wire: 0.01 is a little less there."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


class PinState(Enum):
    KEPT = "kept"  # all full pages of the prefix are in the pool, and stay
    MISSING = "missing"  # the prefix has to be computed
    NO_ROOM = "no room"  # earlier pins take all the room
    OFF = "off"  # the engine's prefix cache is off


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    """A prefix to pin, of prompts of one tenant with one adapter ("" is the base model) and one salt."""

    name: str
    tenant: str
    adapter_digest: str
    cache_salt: str
    token_ids: list[int]

    @property
    def owner(self) -> tuple[str, str, str]:
        """Key of prompts that may share pages: tenant, adapter and salt."""
        return self.tenant, self.adapter_digest, self.cache_salt


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probabilities of a sampled token and of the ``top`` most likely ones, before temperature."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """The log-probabilities of consecutive tokens of a prompt, before temperature.

    ``ranks`` start at 1, the most likely token; the prompt's first token, which has no prediction, has rank 0. For
    every other token, ``top_ids`` and ``top_logprobs`` have the requested number of most likely tokens.
    """

    token_ids: list[int]
    logprobs: list[float]
    ranks: list[int]
    top_ids: list[list[int]]
    top_logprobs: list[list[float]]


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of a prompt as little-endian float32."""

    values: bytes


@dataclass(slots=True)
class TokenDelta:
    """The new output of one choice of a request; ``finish_reason`` is "" while it runs."""

    request_id: str
    choice: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob]
    finish_reason: str = ""
    of_prompt: PromptLogprobs | Embedding | None = None

    @property
    def is_plain(self) -> bool:
        """True if the delta is one token of choice 0 with its text and nothing else."""
        more = self.choice or self.finish_reason or self.logprobs or self.of_prompt is not None
        return not more and len(self.token_ids) == 1

    def append(self, other: TokenDelta) -> None:
        """Add the choice's next output."""
        self.text += other.text
        self.token_ids += other.token_ids
        self.logprobs += other.logprobs
        self.finish_reason = other.finish_reason


class PreemptionSpan(NamedTuple):
    """A pre-emption in milliseconds: its start since submission, and its duration."""

    at_ms: int
    ms: int


@dataclass(slots=True)
class RequestUsage:
    """The usage of a request with any outcome; times are in milliseconds, ``device_us`` in microseconds."""

    request_id: str
    tenant: str
    adapter_digest: str
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    outcome: str = "finished"  # "finished" | "aborted" | "failed" | "refused"
    submitted_unix: float = 0.0
    finished_unix: float = 0.0
    queue_ms: int = 0
    adapter_load_ms: int = 0
    first_token_ms: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0
    preemptions: int = 0
    preempted_ms: int = 0
    preemption_spans: list[PreemptionSpan] = field(default_factory=list)
    adapter_loaded_from: str = ""  # tier from which its adapter was loaded: "disk" | "host"
    device_us: int = 0  # share of the device time of its steps, in proportion to tokens
    drafted_tokens: int = 0  # guesses that steps computed for it; never billed
    accepted_tokens: int = 0  # completion tokens that guesses saved a step


@dataclass(slots=True)
class RequestFinished:
    """The end of a request; ``error`` is set if it was refused or failed."""

    request_id: str
    usage: RequestUsage
    error: RequestError | None = None


@dataclass(slots=True)
class StepOutput:
    """The output of one engine step."""

    step: int
    deltas: list[TokenDelta] = field(default_factory=list)
    finished: list[RequestFinished] = field(default_factory=list)
