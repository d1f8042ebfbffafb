"""Conversion of requests from the wire: prompts become tokens, parameters the engine's data classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import takewhile

from lora_engine.constraints import Constraint, Kind
from lora_engine.errors import RequestError
from lora_engine.peft_format.embedding_layers import MAX_NEW_TOKENS
from lora_engine.request import ChoiceSoFar, GenerationRequest, Pooling, PoolingKind, SamplingParams, Slo
from lora_engine.structured import Grammars
from lora_engine.text import FillInMiddle, Tokenizer
from lora_engine.text.output import ChatOutput
from lora_engine.wire import engine_pb2 as pb

from .chat import ChatFormat, Prompt, chat_size
from .messages import error_message
from .tenant_threads import TenantThreads

MAX_STOPS = 64
MAX_STOP_CHARS = 1000
# Characters of a prompt above which it is tokenised off the event loop.
_LONG_PROMPT = 4000
# Texts that may follow a prompt, to see which of its tokens depend on them.
_NEXT_TEXTS = ("a", " the", "1", "\n", ".")
_NEXT_MESSAGES = ("a", "1, the")
_POOLING = {pb.Pooling.LAST: PoolingKind.LAST, pb.Pooling.MEAN: PoolingKind.MEAN}


class InputProcessor:
    """A converter of requests for one engine, with threads for those that would block the event loop.

    The methods of the engine's data classes may run on any thread; ``tokenize``, ``detokenize`` and ``beginning`` of
    the event loop use the threads.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_format: ChatFormat,
        grammars: Grammars,
        description: pb.EngineDescription | None = None,
    ) -> None:
        """Create a converter; ``description`` has the base model that requests may name and the context's length."""
        self.tokenizer = tokenizer
        self._fill_in_middle = FillInMiddle.of(tokenizer)
        self.chat_format = chat_format
        self.grammars = grammars
        self._description = description or pb.EngineDescription()
        self._text_threads = TenantThreads(2, "text")
        self._template_threads = TenantThreads(2, "templates")  # adapters' chat templates, which may be slow
        # separate, as a large schema must not delay others' prompts
        self._grammar_threads = TenantThreads(2, "grammars")

    def start(self) -> None:
        """Prepare the compilation of grammars, which takes seconds, on a thread."""
        self._grammar_threads.submit("", self.grammars.prepare)

    def close(self) -> None:
        self._text_threads.close()
        self._grammar_threads.close()
        self._template_threads.close()
        self.chat_format.close()
        self.grammars.close()

    def reject_base(self, base_digest: str) -> RequestError | None:
        """Return the error for requests to another base model, or None. Its answer would come from other weights."""
        served = self._description.base_digest
        if not base_digest or base_digest == served:
            return None
        return RequestError(
            "other_base_model",
            f"This host serves the base model {served[:19]}, and the request is for {base_digest[:19]}.",
            "Send it to a host with that base model.",
            param="model",
            retry_after_ms=1000,
        )

    def threads_for(self, submit: pb.Submit) -> TenantThreads | None:
        """Return the threads to convert a request on that would block the event loop, else None."""
        if _has_adapter_template(submit):
            return self._template_threads
        if not self.is_compiled(submit):
            return self._grammar_threads
        return self._text_threads if _prompt_size(submit) > _LONG_PROMPT else None

    def is_compiled(self, submit: pb.Submit) -> bool:
        """Return whether the answer's constraint is compiled already, or there is none."""
        has_constraint = submit.HasField("constraint")
        if submit.HasField("chat") and self.chat_format.constrains(submit.chat, has_constraint=has_constraint):
            return False  # the grammar depends on the prompt
        try:
            constraint = _constraint(submit)
        except RequestError:
            return True
        return constraint is None or self.grammars.find(constraint) is not None

    def convert(self, submit: pb.Submit, adapter: str = "") -> tuple[GenerationRequest, ChatOutput | None]:
        """Convert a request and return how its answer is parsed. Prompts that are clearly longer than the context are
        refused before they are tokenised. ``adapter`` is its adapter in the dtype that serves it. Raises
        ``RequestError``.
        """
        prompt = self._prompt(submit, self._description.max_context)
        return GenerationRequest(
            request_id=submit.request_id,
            prompt_token_ids=prompt.token_ids,
            continues_text=submit.WhichOneof("prompt") != "chat" or submit.chat.continue_final_message,
            shown_special_ids=prompt.shown_special_ids,
            sampling=_sampling(submit.sampling, prompt.end_ids),
            adapter_digest=adapter,
            tenant=submit.tenant,
            slo=_slo(submit.slo),
            grammar=None if prompt.constraint is None else self.grammars.compile(prompt.constraint),
            prompt_only=submit.prompt_only,
            prompt_logprobs=submit.prompt_logprobs if submit.HasField("prompt_logprobs") else None,
            most_prompt_logprobs=submit.most_prompt_logprobs,
            pooling=_pooling(submit),
            more_prompts=tuple(self._more_prompt(submit, more) for more in submit.more_prompts),
            so_far=tuple(ChoiceSoFar(part.choice, list(part.token_ids), part.finished) for part in submit.so_far),
            cache_salt=submit.cache_salt,
        ), prompt.output

    async def tokenize(self, submit: pb.Submit) -> pb.TokenizeReply:
        threads = self._template_threads if _has_adapter_template(submit) else self._text_threads
        try:
            return await threads.submit(submit.tenant, self._tokenize, submit)
        except RequestError as error:
            return pb.TokenizeReply(error=error_message(error))

    async def detokenize(self, token_ids: pb.TokenIds) -> pb.DetokenizeReply:
        try:
            text = await self._text_threads.submit("", self.text, token_ids)
        except RequestError as error:
            return pb.DetokenizeReply(error=error_message(error))
        return pb.DetokenizeReply(text=text)

    async def common_tokens(self, submit: pb.Submit) -> list[int]:
        """Run ``beginning`` on a thread. Raises ``RequestError``."""
        return await self._template_threads.submit(submit.tenant, self.beginning, submit)

    def beginning(self, submit: pb.Submit) -> list[int]:
        """Return the tokens that all longer prompts beginning with this one have in common. Raises ``RequestError``.

        The following text decides how the last characters become tokens, and what a chat template writes after the last
        message, or even before it. So a few continuations are rendered and compared.
        """
        longer = [self._prompt(prompt).token_ids for prompt in _longer(submit)]
        return [first for first, *others in takewhile(lambda ids: len({*ids}) == 1, zip(*longer, strict=False))]

    def _tokenize(self, submit: pb.Submit) -> pb.TokenizeReply:
        ids = self.beginning(submit) if submit.is_beginning else self._prompt(submit).token_ids
        token_bytes = {token_id: self.tokenizer.token_bytes(token_id) for token_id in set(ids)}
        return pb.TokenizeReply(token_ids=ids, token_bytes=token_bytes, max_context=self._description.max_context)

    def text(self, token_ids: pb.TokenIds) -> str:
        """Return the text of token ids, special tokens included. Raises ``RequestError``.

        An adapter may add tokens to the base model's vocabulary. Those that the tokenizer lacks have no text.
        """
        vocab_size = max(self.tokenizer.vocab_size, self._description.geometry.vocab_size) + MAX_NEW_TOKENS
        if (largest := max(token_ids.ids, default=0)) >= vocab_size:
            raise RequestError(
                "invalid_value",
                f"tokens holds {largest}, but no model served here has more than {vocab_size} tokens.",
                f"Use token ids from 0 to {vocab_size - 1}.",
                param="tokens",
            )
        return self.tokenizer.decode(token_ids.ids, keep_special_tokens=True)

    def _prompt(self, submit: pb.Submit, max_context: int = 0) -> Prompt:
        kind, constraint = submit.WhichOneof("prompt"), _constraint(submit)
        add_special_tokens = submit.add_special_tokens if submit.HasField("add_special_tokens") else kind == "text"
        if kind == "chat":
            chat_format = self.chat_format.of(submit.chat)
            text = chat_format.render(submit.chat)
            output = chat_format.output(submit.request_id, submit.chat, text, has_constraint=constraint is not None)
            self._refuse_longer(text, max_context)
            return Prompt(
                self.tokenizer.encode(text, add_special_tokens),
                chat_format.constraint(submit.chat, output, constraint),
                output if output.reads_something else None,
                chat_format.shown_ids(output),
                chat_format.end_ids,
            )
        if submit.suffix and kind in ("text", "token_ids"):
            return self._middle(submit, add_special_tokens, max_context, constraint)
        if kind == "text":
            self._refuse_longer(submit.text, max_context)
            return Prompt(self.tokenizer.encode(submit.text, add_special_tokens), constraint)
        if kind == "token_ids":
            return Prompt(list(submit.token_ids.ids), constraint)
        message = "The request has no prompt."
        raise RequestError("empty_prompt", message, "Send text, token ids or messages.", param="prompt")

    def _middle(
        self, submit: pb.Submit, add_special_tokens: bool, max_context: int, constraint: Constraint | None
    ) -> Prompt:
        if self._fill_in_middle is None:
            raise RequestError(
                "unsupported_parameter",
                "Unsupported parameter: 'suffix' is not supported with this model. Its tokenizer has no tokens to fill "
                "in a middle.",
                "Leave 'suffix' out, or choose a base model that has them, such as Qwen2.5-Coder.",
                param="suffix",
            )
        for text in (submit.text, submit.suffix):
            self._refuse_longer(text, max_context)
        prefix = submit.text if submit.WhichOneof("prompt") == "text" else submit.token_ids.ids
        prompt = self._fill_in_middle.prompt(prefix, submit.suffix, add_special_tokens=add_special_tokens)
        return Prompt(prompt.token_ids, constraint, end_ids=prompt.end_ids)

    def _more_prompt(self, submit: pb.Submit, prompt: pb.Prompt) -> list[int]:
        if prompt.WhichOneof("prompt") != "text":
            return list(prompt.token_ids.ids)
        add_special_tokens = submit.add_special_tokens if submit.HasField("add_special_tokens") else True
        self._refuse_longer(prompt.text, self._description.max_context)
        return self.tokenizer.encode(prompt.text, add_special_tokens)

    def _refuse_longer(self, text: str, max_context: int) -> None:
        if max_context and self.tokenizer.is_longer(text, max_context):
            raise RequestError(
                "context_length_exceeded",
                f"This model's context is {max_context} tokens, and the prompt, {len(text)} characters, has more.",
                f"Shorten the prompt; together with the answer it may be {max_context} tokens.",
                param="messages",
            )


def _prompt_size(submit: pb.Submit) -> int:
    """Return the characters or tokens of the prompt, a measure of the time that converting it takes."""
    if submit.HasField("chat"):
        return chat_size(submit.chat)
    more = sum(len(prompt.text) + len(prompt.token_ids.ids) for prompt in submit.more_prompts)
    return len(submit.text) + len(submit.suffix) + len(submit.token_ids.ids) + more


def _has_adapter_template(submit: pb.Submit) -> bool:
    """Return whether an adapter's template writes the prompt, which may take as long as its time limit."""
    return submit.HasField("chat") and submit.chat.HasField("own_template")


def _constraint(submit: pb.Submit) -> Constraint | None:
    """Return a request's constraint, or None. Raises ``RequestError`` for a kind that this engine does not know."""
    if not submit.HasField("constraint"):
        return None
    wire = submit.constraint
    try:
        return Constraint(Kind(wire.kind), wire.text, wire.best_effort)
    except ValueError:
        raise RequestError(
            "invalid_constraint",
            f"This engine knows no constraint of kind {wire.kind}.",
            "Update the engine host.",
        ) from None


def _longer(submit: pb.Submit) -> Iterator[pb.Submit]:
    """Yield prompts that begin with this one and differ in what follows."""
    prompt = pb.Submit()
    prompt.CopyFrom(submit)
    if submit.WhichOneof("prompt") == "text":
        for more in _NEXT_TEXTS:
            prompt.text = submit.text + more
            yield prompt
    elif submit.WhichOneof("prompt") == "chat":
        if submit.chat.messages and submit.chat.messages[-1].role == "user":
            yield submit
            prompt.chat.messages.add(role="assistant", content=_NEXT_MESSAGES[0])
        for content in _NEXT_MESSAGES:
            following = pb.Submit()
            following.CopyFrom(prompt)
            following.chat.messages.add(role="user", content=content)
            yield following
    else:
        yield submit


def _pooling(submit: pb.Submit) -> Pooling | None:
    if not submit.HasField("pooling"):
        return None
    return Pooling(_POOLING[submit.pooling.kind], submit.pooling.dimensions)


def _slo(wire: pb.Slo) -> Slo:
    if not 0.0 <= wire.weight < float("inf"):  # also catches NaN
        raise RequestError(
            "invalid_value", f"slo.weight is {wire.weight}.", "Send a finite weight above 0.", param="slo.weight"
        )
    values = {field.name: getattr(wire, field.name) for field in fields(Slo)}
    return Slo(**values | {"weight": wire.weight or 1.0})


def _sampling(wire: pb.Sampling, end_ids: tuple[int, ...]) -> SamplingParams:
    """Convert sampling parameters; the template's ``end_ids`` stop the answer too, unless the request ignores ends."""
    if len(wire.stop) > MAX_STOPS or any(len(text) > MAX_STOP_CHARS for text in wire.stop):
        raise RequestError(
            "invalid_value",
            f"stop holds more than {MAX_STOPS} strings, or one of more than {MAX_STOP_CHARS} characters.",
            "Send fewer or shorter stop strings.",
            param="stop",
        )
    values = {field.name: getattr(wire, field.name) for field in fields(SamplingParams)}
    values |= {
        "top_p": wire.top_p or 1.0,
        "repetition_penalty": wire.repetition_penalty or 1.0,
        "seed": wire.seed if wire.HasField("seed") else None,
        "stop": tuple(wire.stop),
        "stop_token_ids": tuple(wire.stop_token_ids),
        "n": wire.n or 1,
        "logit_bias": dict(wire.logit_bias),
    }
    sampling = SamplingParams(**values)
    if not end_ids or sampling.ignore_eos:
        return sampling
    return replace(sampling, stop_token_ids=tuple(dict.fromkeys((*sampling.stop_token_ids, *end_ids))))
