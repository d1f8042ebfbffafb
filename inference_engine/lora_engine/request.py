"""What enters and leaves the engine: requests, their sampling parameters, deltas and outcomes.

Plain data, no tensors and no protobuf: the server translates the wire into these, the
benchmarks and tests build them directly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .structured import Grammar

MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 128


class RequestError(Exception):
    """A request that cannot be served: what happened, and what to do.

    ``code`` is stable and machine-readable; ``param`` names the request field at fault.
    ``retry_after_ms`` is set for refusals that pass with time.
    """

    def __init__(self, code: str, message: str, fix: str = "", *, param: str = "", retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.param = param
        self.retry_after_ms = retry_after_ms


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens; field meanings and ranges are OpenAI's where it has them.

    ``max_tokens`` 0 means up to the context limit; ``temperature`` 0 means greedy;
    ``top_k`` 0 and ``min_p`` 0 mean off. Before ``min_tokens`` no token and no string ends the answer.
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
        """Whether the next token depends on which tokens came before, beyond the model itself."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)

    @property
    def plain_greedy(self) -> bool:
        """Whether the next token is the argmax, and no log-probabilities are asked for."""
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
            if not low <= value <= high:  # also catches NaN
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
    """A tenant's targets for one request; 0 means none.

    ``weight`` is the tenant's fair-share weight and ``max_running`` how many of its sequences may run at once;
    ``priority`` orders requests within the tenant, higher first. After ``deadline_ms`` the answer is of no use: a
    request that still waits then is refused. A ``background`` request runs when no other request of anybody waits.
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
    """How a prompt becomes one vector of length 1: by its hidden states after the last norm.

    Of fewer ``dimensions`` than the model has, the first ones are taken; 0 is all.
    """

    kind: PoolingKind
    dimensions: int = 0


@dataclass(frozen=True, slots=True)
class ChoiceSoFar:
    """What another host has generated of one choice of an answer, before it was lost."""

    choice: int
    token_ids: list[int]
    finished: bool = False  # nothing comes after it


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue, ``sampling.n`` times.

    ``adapter_digest`` is an adapter's content digest, or "" for the base model. ``continues_text``
    says that the output continues the prompt's own text (a completion, not a chat turn), so that
    a leading space belongs to it. ``grammar`` is what the answer is held to, compiled by the
    engine's ``grammars``. ``shown_special_ids`` are special tokens that show in the text.

    With ``prompt_only`` nothing is generated. ``prompt_logprobs`` asks for the log-probabilities of the prompt's
    tokens, each with so many of the most likely ones; all of them together may be ``most_prompt_logprobs`` (0: any).
    ``pooling`` asks for a vector of the prompt, and of each of ``more_prompts`` as a choice of its own.

    Requests of a tenant share cached prefixes only if they have the same ``cache_salt``. ``pin`` names the pinned
    prefix that the request computes.

    ``so_far`` is what of the answer is there already. The rest is what an undisturbed run would have generated, if it
    is greedy or seeded.
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
    def largest_token_id(self) -> int:
        """The largest of all token ids that the request names."""
        answers = [part.token_ids for part in self.so_far]
        params = self.sampling
        lists = (self.prompt_token_ids, *self.more_prompts, *answers, params.stop_token_ids, params.logit_bias)
        return max((max(ids) for ids in lists if ids), default=0)


class PinState(Enum):
    KEPT = "kept"  # all its full pages are in the pool, and stay
    MISSING = "missing"  # it has to be computed
    NO_ROOM = "no room"  # what is pinned before it leaves it none
    OFF = "off"  # this engine keeps no prefixes


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    """The beginning of prompts of one tenant, for one adapter ("" is the base model) and one salt, that is to stay."""

    name: str
    tenant: str
    adapter_digest: str
    cache_salt: str
    token_ids: list[int]

    @property
    def owner(self) -> tuple[str, str, str]:
        """Only prompts of the same one share pages."""
        return self.tenant, self.adapter_digest, self.cache_salt


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-probability of the chosen token and of the ``top`` most likely ones, before temperature."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of consecutive tokens of a prompt, before temperature.

    ``ranks`` counts from 1, the most likely token; 0 is the prompt's first token, which nothing predicts. For every
    other one, ``top_ids`` and ``top_logprobs`` have as many of the most likely tokens as were asked for.
    """

    token_ids: list[int]
    logprobs: list[float]
    ranks: list[int]
    top_ids: list[list[int]]
    top_logprobs: list[list[float]]


@dataclass(frozen=True, slots=True)
class Embedding:
    """A prompt's vector: little-endian float32."""

    values: bytes


@dataclass(slots=True)
class TokenDelta:
    """New output of one choice of one request. ``finish_reason`` is "" while it runs."""

    request_id: str
    choice: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob]
    finish_reason: str = ""
    of_prompt: PromptLogprobs | Embedding | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is one token of choice 0 with its text and nothing else."""
        more = self.choice or self.finish_reason or self.logprobs or self.of_prompt is not None
        return not more and len(self.token_ids) == 1


@dataclass(slots=True)
class RequestUsage:
    """What a request really used, whatever its outcome; times in milliseconds but for ``device_us``."""

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
    preemption_spans: list[tuple[int, int]] = field(default_factory=list)  # since it was submitted, and how long
    adapter_loaded_from: str = ""  # the tier that it waited for: "disk" | "host"
    device_us: int = 0  # its share of the time of every step it took part in, by tokens


@dataclass(slots=True)
class RequestFinished:
    """A request is over. ``error`` is set when it was refused or failed."""

    request_id: str
    usage: RequestUsage
    error: RequestError | None = None


@dataclass(slots=True)
class StepOutput:
    """Everything one engine step produced."""

    step: int
    deltas: list[TokenDelta] = field(default_factory=list)
    finished: list[RequestFinished] = field(default_factory=list)
