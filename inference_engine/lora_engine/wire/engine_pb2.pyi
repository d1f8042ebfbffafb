from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
SHOWN_FIELD_NUMBER: _ClassVar[int]
shown: _descriptor.FieldDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EngineDescription(_message.Message):
    __slots__ = ("boot_id", "engine_version", "base_model", "base_digest", "model_family", "device", "dtype", "max_context", "max_running", "max_lora_rank", "page_tokens", "page_bytes", "pages_total", "host_arena_bytes", "policies", "geometry", "chat_template_digest", "text_digest", "zone", "last_end", "wire_version", "added_tokens")
    class PoliciesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MODEL_FAMILY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_FIELD_NUMBER: _ClassVar[int]
    MAX_LORA_RANK_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAGES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    HOST_ARENA_BYTES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    GEOMETRY_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TEXT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    LAST_END_FIELD_NUMBER: _ClassVar[int]
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    engine_version: str
    base_model: str
    base_digest: str
    model_family: str
    device: str
    dtype: str
    max_context: int
    max_running: int
    max_lora_rank: int
    page_tokens: int
    page_bytes: int
    pages_total: int
    host_arena_bytes: int
    policies: _containers.ScalarMap[str, str]
    geometry: BaseGeometry
    chat_template_digest: str
    text_digest: str
    zone: str
    last_end: LastEnd
    wire_version: int
    added_tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, boot_id: _Optional[str] = ..., engine_version: _Optional[str] = ..., base_model: _Optional[str] = ..., base_digest: _Optional[str] = ..., model_family: _Optional[str] = ..., device: _Optional[str] = ..., dtype: _Optional[str] = ..., max_context: _Optional[int] = ..., max_running: _Optional[int] = ..., max_lora_rank: _Optional[int] = ..., page_tokens: _Optional[int] = ..., page_bytes: _Optional[int] = ..., pages_total: _Optional[int] = ..., host_arena_bytes: _Optional[int] = ..., policies: _Optional[_Mapping[str, str]] = ..., geometry: _Optional[_Union[BaseGeometry, _Mapping]] = ..., chat_template_digest: _Optional[str] = ..., text_digest: _Optional[str] = ..., zone: _Optional[str] = ..., last_end: _Optional[_Union[LastEnd, _Mapping]] = ..., wire_version: _Optional[int] = ..., added_tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class LastEnd(_message.Message):
    __slots__ = ("reason", "unix_time")
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_FIELD_NUMBER: _ClassVar[int]
    reason: str
    unix_time: float
    def __init__(self, reason: _Optional[str] = ..., unix_time: _Optional[float] = ...) -> None: ...

class BaseGeometry(_message.Message):
    __slots__ = ("num_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "fused_qkv", "fused_gate_up", "untied_head", "gated_queries", "layer_kinds", "delta_channels", "delta_values", "delta_heads", "split_delta", "fused_delta", "experts", "expert_features", "shared_features", "shared_expert", "interleaved_experts")
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    INTERMEDIATE_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_ATTENTION_HEADS_FIELD_NUMBER: _ClassVar[int]
    NUM_KEY_VALUE_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    FUSED_QKV_FIELD_NUMBER: _ClassVar[int]
    FUSED_GATE_UP_FIELD_NUMBER: _ClassVar[int]
    UNTIED_HEAD_FIELD_NUMBER: _ClassVar[int]
    GATED_QUERIES_FIELD_NUMBER: _ClassVar[int]
    LAYER_KINDS_FIELD_NUMBER: _ClassVar[int]
    DELTA_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    DELTA_VALUES_FIELD_NUMBER: _ClassVar[int]
    DELTA_HEADS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_DELTA_FIELD_NUMBER: _ClassVar[int]
    FUSED_DELTA_FIELD_NUMBER: _ClassVar[int]
    EXPERTS_FIELD_NUMBER: _ClassVar[int]
    EXPERT_FEATURES_FIELD_NUMBER: _ClassVar[int]
    SHARED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    SHARED_EXPERT_FIELD_NUMBER: _ClassVar[int]
    INTERLEAVED_EXPERTS_FIELD_NUMBER: _ClassVar[int]
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    fused_qkv: int
    fused_gate_up: int
    untied_head: int
    gated_queries: int
    layer_kinds: str
    delta_channels: int
    delta_values: int
    delta_heads: int
    split_delta: int
    fused_delta: int
    experts: int
    expert_features: int
    shared_features: int
    shared_expert: int
    interleaved_experts: int
    def __init__(self, num_layers: _Optional[int] = ..., hidden_size: _Optional[int] = ..., intermediate_size: _Optional[int] = ..., num_attention_heads: _Optional[int] = ..., num_key_value_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., vocab_size: _Optional[int] = ..., fused_qkv: _Optional[int] = ..., fused_gate_up: _Optional[int] = ..., untied_head: _Optional[int] = ..., gated_queries: _Optional[int] = ..., layer_kinds: _Optional[str] = ..., delta_channels: _Optional[int] = ..., delta_values: _Optional[int] = ..., delta_heads: _Optional[int] = ..., split_delta: _Optional[int] = ..., fused_delta: _Optional[int] = ..., experts: _Optional[int] = ..., expert_features: _Optional[int] = ..., shared_features: _Optional[int] = ..., shared_expert: _Optional[int] = ..., interleaved_experts: _Optional[int] = ...) -> None: ...

class ClientMessage(_message.Message):
    __slots__ = ("hello", "submit", "abort")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    submit: Submit
    abort: Abort
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., submit: _Optional[_Union[Submit, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("client_id", "wire_version")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    wire_version: int
    def __init__(self, client_id: _Optional[str] = ..., wire_version: _Optional[int] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "tenant", "adapter_digest", "text", "token_ids", "chat", "sampling", "slo", "echo_token_ids", "base_digest", "prompt_only", "prompt_logprobs", "most_prompt_logprobs", "describe_prompt", "add_special_tokens", "pooling", "more_prompts", "adapter_dtype", "so_far", "handle", "cache_salt", "is_beginning", "constraint", "model", "suffix")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SLO_FIELD_NUMBER: _ClassVar[int]
    ECHO_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROMPT_ONLY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    MOST_PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_PROMPT_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    MORE_PROMPTS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DTYPE_FIELD_NUMBER: _ClassVar[int]
    SO_FAR_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    IS_BEGINNING_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    adapter_digest: str
    text: str
    token_ids: TokenIds
    chat: Chat
    sampling: Sampling
    slo: Slo
    echo_token_ids: bool
    base_digest: str
    prompt_only: bool
    prompt_logprobs: int
    most_prompt_logprobs: int
    describe_prompt: bool
    add_special_tokens: bool
    pooling: Pooling
    more_prompts: _containers.RepeatedCompositeFieldContainer[Prompt]
    adapter_dtype: str
    so_far: _containers.RepeatedCompositeFieldContainer[ChoiceSoFar]
    handle: int
    cache_salt: str
    is_beginning: bool
    constraint: Constraint
    model: str
    suffix: str
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., adapter_digest: _Optional[str] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Union[TokenIds, _Mapping]] = ..., chat: _Optional[_Union[Chat, _Mapping]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., slo: _Optional[_Union[Slo, _Mapping]] = ..., echo_token_ids: bool = ..., base_digest: _Optional[str] = ..., prompt_only: bool = ..., prompt_logprobs: _Optional[int] = ..., most_prompt_logprobs: _Optional[int] = ..., describe_prompt: bool = ..., add_special_tokens: bool = ..., pooling: _Optional[_Union[Pooling, _Mapping]] = ..., more_prompts: _Optional[_Iterable[_Union[Prompt, _Mapping]]] = ..., adapter_dtype: _Optional[str] = ..., so_far: _Optional[_Iterable[_Union[ChoiceSoFar, _Mapping]]] = ..., handle: _Optional[int] = ..., cache_salt: _Optional[str] = ..., is_beginning: bool = ..., constraint: _Optional[_Union[Constraint, _Mapping]] = ..., model: _Optional[str] = ..., suffix: _Optional[str] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("kind", "text", "best_effort")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Constraint.Kind]
        JSON_OBJECT: _ClassVar[Constraint.Kind]
        JSON_SCHEMA: _ClassVar[Constraint.Kind]
        REGEX: _ClassVar[Constraint.Kind]
        CHOICE: _ClassVar[Constraint.Kind]
        GRAMMAR: _ClassVar[Constraint.Kind]
    KIND_UNSPECIFIED: Constraint.Kind
    JSON_OBJECT: Constraint.Kind
    JSON_SCHEMA: Constraint.Kind
    REGEX: Constraint.Kind
    CHOICE: Constraint.Kind
    GRAMMAR: Constraint.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BEST_EFFORT_FIELD_NUMBER: _ClassVar[int]
    kind: Constraint.Kind
    text: str
    best_effort: bool
    def __init__(self, kind: _Optional[_Union[Constraint.Kind, str]] = ..., text: _Optional[str] = ..., best_effort: bool = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ChoiceSoFar(_message.Message):
    __slots__ = ("choice", "token_ids", "finished")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    choice: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    finished: bool
    def __init__(self, choice: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., finished: bool = ...) -> None: ...

class Prompt(_message.Message):
    __slots__ = ("text", "token_ids")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: TokenIds
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Union[TokenIds, _Mapping]] = ...) -> None: ...

class Pooling(_message.Message):
    __slots__ = ("kind", "dimensions")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LAST: _ClassVar[Pooling.Kind]
        MEAN: _ClassVar[Pooling.Kind]
    LAST: Pooling.Kind
    MEAN: Pooling.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    kind: Pooling.Kind
    dimensions: int
    def __init__(self, kind: _Optional[_Union[Pooling.Kind, str]] = ..., dimensions: _Optional[int] = ...) -> None: ...

class TokenizeReply(_message.Message):
    __slots__ = ("token_ids", "token_bytes", "error", "max_context")
    class TokenBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_bytes: _containers.ScalarMap[int, bytes]
    error: EngineError
    max_context: int
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., token_bytes: _Optional[_Mapping[int, bytes]] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ..., max_context: _Optional[int] = ...) -> None: ...

class DetokenizeReply(_message.Message):
    __slots__ = ("text", "error")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    text: str
    error: EngineError
    def __init__(self, text: _Optional[str] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ...) -> None: ...

class Chat(_message.Message):
    __slots__ = ("messages", "tools", "tool_choice", "single_tool_call", "template_kwargs", "reasoning_effort", "no_generation_prompt", "continue_final_message", "own_template")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    SINGLE_TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_KWARGS_FIELD_NUMBER: _ClassVar[int]
    REASONING_EFFORT_FIELD_NUMBER: _ClassVar[int]
    NO_GENERATION_PROMPT_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OWN_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    tool_choice: ToolChoice
    single_tool_call: bool
    template_kwargs: str
    reasoning_effort: str
    no_generation_prompt: bool
    continue_final_message: bool
    own_template: ChatTemplate
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., single_tool_call: bool = ..., template_kwargs: _Optional[str] = ..., reasoning_effort: _Optional[str] = ..., no_generation_prompt: bool = ..., continue_final_message: bool = ..., own_template: _Optional[_Union[ChatTemplate, _Mapping]] = ...) -> None: ...

class ChatTemplate(_message.Message):
    __slots__ = ("source", "tool_source", "special_tokens")
    class SpecialTokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOOL_SOURCE_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    source: str
    tool_source: str
    special_tokens: _containers.ScalarMap[str, str]
    def __init__(self, source: _Optional[str] = ..., tool_source: _Optional[str] = ..., special_tokens: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    name: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    tool_call_id: str
    reasoning: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., name: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., tool_call_id: _Optional[str] = ..., reasoning: _Optional[str] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "description", "parameters", "strict")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters: str
    strict: bool
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[str] = ..., strict: bool = ...) -> None: ...

class ToolChoice(_message.Message):
    __slots__ = ("mode", "name")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AUTO: _ClassVar[ToolChoice.Mode]
        NONE: _ClassVar[ToolChoice.Mode]
        REQUIRED: _ClassVar[ToolChoice.Mode]
        NAMED: _ClassVar[ToolChoice.Mode]
    AUTO: ToolChoice.Mode
    NONE: ToolChoice.Mode
    REQUIRED: ToolChoice.Mode
    NAMED: ToolChoice.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    mode: ToolChoice.Mode
    name: str
    def __init__(self, mode: _Optional[_Union[ToolChoice.Mode, str]] = ..., name: _Optional[str] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "name", "arguments")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "stop", "stop_token_ids", "n", "logprobs", "top_logprobs", "ignore_eos", "logit_bias", "include_stop", "min_tokens", "keep_special_tokens")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_STOP_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEEP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    n: int
    logprobs: bool
    top_logprobs: int
    ignore_eos: bool
    logit_bias: _containers.ScalarMap[int, float]
    include_stop: bool
    min_tokens: int
    keep_special_tokens: bool
    def __init__(self, max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., n: _Optional[int] = ..., logprobs: bool = ..., top_logprobs: _Optional[int] = ..., ignore_eos: bool = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., include_stop: bool = ..., min_tokens: _Optional[int] = ..., keep_special_tokens: bool = ...) -> None: ...

class Slo(_message.Message):
    __slots__ = ("first_token_ms", "inter_token_ms", "weight", "priority", "deadline_ms", "max_running", "background")
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    INTER_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    first_token_ms: int
    inter_token_ms: int
    weight: float
    priority: int
    deadline_ms: int
    max_running: int
    background: bool
    def __init__(self, first_token_ms: _Optional[int] = ..., inter_token_ms: _Optional[int] = ..., weight: _Optional[float] = ..., priority: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., max_running: _Optional[int] = ..., background: bool = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class EngineMessage(_message.Message):
    __slots__ = ("welcome", "step")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    step: StepDeltas
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., step: _Optional[_Union[StepDeltas, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("boot_id", "base_digest", "resumes")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RESUMES_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    base_digest: str
    resumes: bool
    def __init__(self, boot_id: _Optional[str] = ..., base_digest: _Optional[str] = ..., resumes: bool = ...) -> None: ...

class StepDeltas(_message.Message):
    __slots__ = ("step", "deltas", "finished", "plain")
    STEP_FIELD_NUMBER: _ClassVar[int]
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    step: int
    deltas: _containers.RepeatedCompositeFieldContainer[Delta]
    finished: _containers.RepeatedCompositeFieldContainer[Finished]
    plain: PlainTokens
    def __init__(self, step: _Optional[int] = ..., deltas: _Optional[_Iterable[_Union[Delta, _Mapping]]] = ..., finished: _Optional[_Iterable[_Union[Finished, _Mapping]]] = ..., plain: _Optional[_Union[PlainTokens, _Mapping]] = ...) -> None: ...

class PlainTokens(_message.Message):
    __slots__ = ("handles", "texts", "token_ids")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    handles: _containers.RepeatedScalarFieldContainer[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, handles: _Optional[_Iterable[int]] = ..., texts: _Optional[_Iterable[str]] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("request_id", "choice", "text", "num_tokens", "token_ids", "logprobs", "finish_reason", "reasoning", "tool_calls", "prompt", "prompt_logprobs", "embedding")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    choice: int
    text: str
    num_tokens: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    finish_reason: str
    reasoning: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCallDelta]
    prompt: PromptDescription
    prompt_logprobs: PromptLogprobs
    embedding: bytes
    def __init__(self, request_id: _Optional[str] = ..., choice: _Optional[int] = ..., text: _Optional[str] = ..., num_tokens: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., finish_reason: _Optional[str] = ..., reasoning: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCallDelta, _Mapping]]] = ..., prompt: _Optional[_Union[PromptDescription, _Mapping]] = ..., prompt_logprobs: _Optional[_Union[PromptLogprobs, _Mapping]] = ..., embedding: _Optional[bytes] = ...) -> None: ...

class ToolCallDelta(_message.Message):
    __slots__ = ("index", "id", "name", "arguments")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    index: int
    id: str
    name: str
    arguments: str
    def __init__(self, index: _Optional[int] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class PromptDescription(_message.Message):
    __slots__ = ("token_ids", "text")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    text: str
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ...) -> None: ...

class PromptLogprobs(_message.Message):
    __slots__ = ("token_ids", "logprobs", "ranks", "num_top", "top_ids", "top_logprobs", "token_bytes")
    class TokenBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOP_FIELD_NUMBER: _ClassVar[int]
    TOP_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    num_top: int
    top_ids: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedScalarFieldContainer[float]
    token_bytes: _containers.ScalarMap[int, bytes]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., ranks: _Optional[_Iterable[int]] = ..., num_top: _Optional[int] = ..., top_ids: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[float]] = ..., token_bytes: _Optional[_Mapping[int, bytes]] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token_id", "token", "token_bytes", "logprob", "top")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    token: str
    token_bytes: bytes
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[TopLogprob]
    def __init__(self, token_id: _Optional[int] = ..., token: _Optional[str] = ..., token_bytes: _Optional[bytes] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[TopLogprob, _Mapping]]] = ...) -> None: ...

class TopLogprob(_message.Message):
    __slots__ = ("token_id", "token", "token_bytes", "logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    token: str
    token_bytes: bytes
    logprob: float
    def __init__(self, token_id: _Optional[int] = ..., token: _Optional[str] = ..., token_bytes: _Optional[bytes] = ..., logprob: _Optional[float] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("request_id", "usage", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    usage: UsageRecord
    error: EngineError
    def __init__(self, request_id: _Optional[str] = ..., usage: _Optional[_Union[UsageRecord, _Mapping]] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ...) -> None: ...

class EngineError(_message.Message):
    __slots__ = ("code", "message", "fix", "param", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIX_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    fix: str
    param: str
    retry_after_ms: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., fix: _Optional[str] = ..., param: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class UsageRecord(_message.Message):
    __slots__ = ("request_id", "tenant", "adapter_digest", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "outcome", "submitted_unix", "finished_unix", "queue_ms", "adapter_load_ms", "first_token_ms", "prefill_ms", "decode_ms", "preemptions", "seq", "device_us", "error_code", "adapter_loaded_from", "preempted_ms", "preemption_spans", "finish_reason", "drafted_tokens", "accepted_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_UNIX_FIELD_NUMBER: _ClassVar[int]
    FINISHED_UNIX_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_LOAD_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    DECODE_MS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DEVICE_US_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_LOADED_FROM_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_MS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTION_SPANS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    adapter_digest: str
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int
    outcome: str
    submitted_unix: float
    finished_unix: float
    queue_ms: int
    adapter_load_ms: int
    first_token_ms: int
    prefill_ms: int
    decode_ms: int
    preemptions: int
    seq: int
    device_us: int
    error_code: str
    adapter_loaded_from: str
    preempted_ms: int
    preemption_spans: _containers.RepeatedCompositeFieldContainer[PreemptionSpan]
    finish_reason: str
    drafted_tokens: int
    accepted_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., adapter_digest: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., cached_prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., outcome: _Optional[str] = ..., submitted_unix: _Optional[float] = ..., finished_unix: _Optional[float] = ..., queue_ms: _Optional[int] = ..., adapter_load_ms: _Optional[int] = ..., first_token_ms: _Optional[int] = ..., prefill_ms: _Optional[int] = ..., decode_ms: _Optional[int] = ..., preemptions: _Optional[int] = ..., seq: _Optional[int] = ..., device_us: _Optional[int] = ..., error_code: _Optional[str] = ..., adapter_loaded_from: _Optional[str] = ..., preempted_ms: _Optional[int] = ..., preemption_spans: _Optional[_Iterable[_Union[PreemptionSpan, _Mapping]]] = ..., finish_reason: _Optional[str] = ..., drafted_tokens: _Optional[int] = ..., accepted_tokens: _Optional[int] = ...) -> None: ...

class PreemptionSpan(_message.Message):
    __slots__ = ("at_ms", "ms")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    ms: int
    def __init__(self, at_ms: _Optional[int] = ..., ms: _Optional[int] = ...) -> None: ...

class StageAdapterRequest(_message.Message):
    __slots__ = ("digest", "source_uri", "source_headers", "file_digests", "file_uris", "base_digest", "peers", "adapter_dtype")
    class SourceHeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class FileDigestsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class FileUrisEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_URI_FIELD_NUMBER: _ClassVar[int]
    SOURCE_HEADERS_FIELD_NUMBER: _ClassVar[int]
    FILE_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    FILE_URIS_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DTYPE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    source_uri: str
    source_headers: _containers.ScalarMap[str, str]
    file_digests: _containers.ScalarMap[str, str]
    file_uris: _containers.ScalarMap[str, str]
    base_digest: str
    peers: _containers.RepeatedCompositeFieldContainer[AdapterPeer]
    adapter_dtype: str
    def __init__(self, digest: _Optional[str] = ..., source_uri: _Optional[str] = ..., source_headers: _Optional[_Mapping[str, str]] = ..., file_digests: _Optional[_Mapping[str, str]] = ..., file_uris: _Optional[_Mapping[str, str]] = ..., base_digest: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[AdapterPeer, _Mapping]]] = ..., adapter_dtype: _Optional[str] = ...) -> None: ...

class AdapterPeer(_message.Message):
    __slots__ = ("address", "server_name", "authority", "certificate", "key")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    address: str
    server_name: str
    authority: bytes
    certificate: bytes
    key: bytes
    def __init__(self, address: _Optional[str] = ..., server_name: _Optional[str] = ..., authority: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., key: _Optional[bytes] = ...) -> None: ...

class ReadAdapterRequest(_message.Message):
    __slots__ = ("digest", "file")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    file: str
    def __init__(self, digest: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class AdapterBytes(_message.Message):
    __slots__ = ("data", "total")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    total: int
    def __init__(self, data: _Optional[bytes] = ..., total: _Optional[int] = ...) -> None: ...

class StageEvent(_message.Message):
    __slots__ = ("phase", "bytes_done", "bytes_total", "error", "rank", "pool_pages")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[StageEvent.Phase]
        QUEUED: _ClassVar[StageEvent.Phase]
        DOWNLOADING: _ClassVar[StageEvent.Phase]
        VERIFYING: _ClassVar[StageEvent.Phase]
        LOADING: _ClassVar[StageEvent.Phase]
        READY: _ClassVar[StageEvent.Phase]
        FAILED: _ClassVar[StageEvent.Phase]
    PHASE_UNSPECIFIED: StageEvent.Phase
    QUEUED: StageEvent.Phase
    DOWNLOADING: StageEvent.Phase
    VERIFYING: StageEvent.Phase
    LOADING: StageEvent.Phase
    READY: StageEvent.Phase
    FAILED: StageEvent.Phase
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    POOL_PAGES_FIELD_NUMBER: _ClassVar[int]
    phase: StageEvent.Phase
    bytes_done: int
    bytes_total: int
    error: EngineError
    rank: int
    pool_pages: int
    def __init__(self, phase: _Optional[_Union[StageEvent.Phase, str]] = ..., bytes_done: _Optional[int] = ..., bytes_total: _Optional[int] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ..., rank: _Optional[int] = ..., pool_pages: _Optional[int] = ...) -> None: ...

class DropAdapterRequest(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class DropAdapterReply(_message.Message):
    __slots__ = ("was_resident",)
    WAS_RESIDENT_FIELD_NUMBER: _ClassVar[int]
    was_resident: bool
    def __init__(self, was_resident: bool = ...) -> None: ...

class PinAdaptersRequest(_message.Message):
    __slots__ = ("digests", "dtypes")
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedScalarFieldContainer[str]
    dtypes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, digests: _Optional[_Iterable[str]] = ..., dtypes: _Optional[_Iterable[str]] = ...) -> None: ...

class PinAdaptersReply(_message.Message):
    __slots__ = ("digests",)
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, digests: _Optional[_Iterable[str]] = ...) -> None: ...

class PinPrefixesRequest(_message.Message):
    __slots__ = ("prefixes",)
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    prefixes: _containers.RepeatedCompositeFieldContainer[PinnedPrefix]
    def __init__(self, prefixes: _Optional[_Iterable[_Union[PinnedPrefix, _Mapping]]] = ...) -> None: ...

class PinnedPrefix(_message.Message):
    __slots__ = ("name", "prompt")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    name: str
    prompt: Submit
    def __init__(self, name: _Optional[str] = ..., prompt: _Optional[_Union[Submit, _Mapping]] = ...) -> None: ...

class PinPrefixesReply(_message.Message):
    __slots__ = ("prefixes",)
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    prefixes: _containers.RepeatedCompositeFieldContainer[PrefixState]
    def __init__(self, prefixes: _Optional[_Iterable[_Union[PrefixState, _Mapping]]] = ...) -> None: ...

class PrefixState(_message.Message):
    __slots__ = ("name", "state", "tokens", "error")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[PrefixState.State]
        KEPT: _ClassVar[PrefixState.State]
        COMPUTING: _ClassVar[PrefixState.State]
        NO_ROOM: _ClassVar[PrefixState.State]
        FAILED: _ClassVar[PrefixState.State]
        OFF: _ClassVar[PrefixState.State]
    STATE_UNSPECIFIED: PrefixState.State
    KEPT: PrefixState.State
    COMPUTING: PrefixState.State
    NO_ROOM: PrefixState.State
    FAILED: PrefixState.State
    OFF: PrefixState.State
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: PrefixState.State
    tokens: int
    error: EngineError
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[PrefixState.State, str]] = ..., tokens: _Optional[int] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ...) -> None: ...

class ProbeAdapterRequest(_message.Message):
    __slots__ = ("digest", "patience_ms", "own_template")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_MS_FIELD_NUMBER: _ClassVar[int]
    OWN_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    patience_ms: int
    own_template: ChatTemplate
    def __init__(self, digest: _Optional[str] = ..., patience_ms: _Optional[int] = ..., own_template: _Optional[_Union[ChatTemplate, _Mapping]] = ...) -> None: ...

class ProbeAdapterReply(_message.Message):
    __slots__ = ("effect", "error")
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    effect: AdapterEffect
    error: EngineError
    def __init__(self, effect: _Optional[_Union[AdapterEffect, _Mapping]] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ...) -> None: ...

class CompareAdapterDtypesRequest(_message.Message):
    __slots__ = ("digest", "adapter_dtype", "patience_ms", "own_template")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DTYPE_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_MS_FIELD_NUMBER: _ClassVar[int]
    OWN_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    adapter_dtype: str
    patience_ms: int
    own_template: ChatTemplate
    def __init__(self, digest: _Optional[str] = ..., adapter_dtype: _Optional[str] = ..., patience_ms: _Optional[int] = ..., own_template: _Optional[_Union[ChatTemplate, _Mapping]] = ...) -> None: ...

class CompareAdapterDtypesReply(_message.Message):
    __slots__ = ("report", "error")
    REPORT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    report: DtypeReport
    error: EngineError
    def __init__(self, report: _Optional[_Union[DtypeReport, _Mapping]] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ...) -> None: ...

class DtypeReport(_message.Message):
    __slots__ = ("dtype", "outcome", "reason", "tokens", "agreeing", "mean_distance", "largest_distance", "least_agreeing", "most_distance", "pool_pages", "elapsed_ms")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[DtypeReport.Outcome]
        PENDING: _ClassVar[DtypeReport.Outcome]
        AGREES: _ClassVar[DtypeReport.Outcome]
        DIFFERS: _ClassVar[DtypeReport.Outcome]
        NOT_MEASURED: _ClassVar[DtypeReport.Outcome]
    OUTCOME_UNSPECIFIED: DtypeReport.Outcome
    PENDING: DtypeReport.Outcome
    AGREES: DtypeReport.Outcome
    DIFFERS: DtypeReport.Outcome
    NOT_MEASURED: DtypeReport.Outcome
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    AGREEING_FIELD_NUMBER: _ClassVar[int]
    MEAN_DISTANCE_FIELD_NUMBER: _ClassVar[int]
    LARGEST_DISTANCE_FIELD_NUMBER: _ClassVar[int]
    LEAST_AGREEING_FIELD_NUMBER: _ClassVar[int]
    MOST_DISTANCE_FIELD_NUMBER: _ClassVar[int]
    POOL_PAGES_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MS_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    outcome: DtypeReport.Outcome
    reason: str
    tokens: int
    agreeing: int
    mean_distance: float
    largest_distance: float
    least_agreeing: float
    most_distance: float
    pool_pages: int
    elapsed_ms: int
    def __init__(self, dtype: _Optional[str] = ..., outcome: _Optional[_Union[DtypeReport.Outcome, str]] = ..., reason: _Optional[str] = ..., tokens: _Optional[int] = ..., agreeing: _Optional[int] = ..., mean_distance: _Optional[float] = ..., largest_distance: _Optional[float] = ..., least_agreeing: _Optional[float] = ..., most_distance: _Optional[float] = ..., pool_pages: _Optional[int] = ..., elapsed_ms: _Optional[int] = ...) -> None: ...

class AdapterEffect(_message.Message):
    __slots__ = ("verdict", "prompts", "layer_changes", "elapsed_ms", "agreement")
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERDICT_UNSPECIFIED: _ClassVar[AdapterEffect.Verdict]
        ACTS: _ClassVar[AdapterEffect.Verdict]
        CHANGES_NOTHING: _ClassVar[AdapterEffect.Verdict]
        OVERFLOWS: _ClassVar[AdapterEffect.Verdict]
    VERDICT_UNSPECIFIED: AdapterEffect.Verdict
    ACTS: AdapterEffect.Verdict
    CHANGES_NOTHING: AdapterEffect.Verdict
    OVERFLOWS: AdapterEffect.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    LAYER_CHANGES_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MS_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    verdict: AdapterEffect.Verdict
    prompts: _containers.RepeatedCompositeFieldContainer[ProbedPrompt]
    layer_changes: _containers.RepeatedScalarFieldContainer[float]
    elapsed_ms: int
    agreement: Agreement
    def __init__(self, verdict: _Optional[_Union[AdapterEffect.Verdict, str]] = ..., prompts: _Optional[_Iterable[_Union[ProbedPrompt, _Mapping]]] = ..., layer_changes: _Optional[_Iterable[float]] = ..., elapsed_ms: _Optional[int] = ..., agreement: _Optional[_Union[Agreement, _Mapping]] = ...) -> None: ...

class Agreement(_message.Message):
    __slots__ = ("outcome", "reason", "dequantised", "base", "adapter", "prompts", "layer_changes", "elapsed_ms")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[Agreement.Outcome]
        PENDING: _ClassVar[Agreement.Outcome]
        AGREES: _ClassVar[Agreement.Outcome]
        DIFFERS: _ClassVar[Agreement.Outcome]
        NOT_MEASURED: _ClassVar[Agreement.Outcome]
    OUTCOME_UNSPECIFIED: Agreement.Outcome
    PENDING: Agreement.Outcome
    AGREES: Agreement.Outcome
    DIFFERS: Agreement.Outcome
    NOT_MEASURED: Agreement.Outcome
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEQUANTISED_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    LAYER_CHANGES_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MS_FIELD_NUMBER: _ClassVar[int]
    outcome: Agreement.Outcome
    reason: str
    dequantised: bool
    base: AgreementFigures
    adapter: AgreementFigures
    prompts: _containers.RepeatedCompositeFieldContainer[PromptAgreement]
    layer_changes: _containers.RepeatedScalarFieldContainer[float]
    elapsed_ms: int
    def __init__(self, outcome: _Optional[_Union[Agreement.Outcome, str]] = ..., reason: _Optional[str] = ..., dequantised: bool = ..., base: _Optional[_Union[AgreementFigures, _Mapping]] = ..., adapter: _Optional[_Union[AgreementFigures, _Mapping]] = ..., prompts: _Optional[_Iterable[_Union[PromptAgreement, _Mapping]]] = ..., layer_changes: _Optional[_Iterable[float]] = ..., elapsed_ms: _Optional[int] = ...) -> None: ...

class AgreementFigures(_message.Message):
    __slots__ = ("tokens", "agreeing", "mean_distance", "largest_distance")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    AGREEING_FIELD_NUMBER: _ClassVar[int]
    MEAN_DISTANCE_FIELD_NUMBER: _ClassVar[int]
    LARGEST_DISTANCE_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    agreeing: int
    mean_distance: float
    largest_distance: float
    def __init__(self, tokens: _Optional[int] = ..., agreeing: _Optional[int] = ..., mean_distance: _Optional[float] = ..., largest_distance: _Optional[float] = ...) -> None: ...

class PromptAgreement(_message.Message):
    __slots__ = ("base", "adapter", "base_tokens", "adapter_tokens")
    BASE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    BASE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    base: AgreementFigures
    adapter: AgreementFigures
    base_tokens: _containers.RepeatedScalarFieldContainer[str]
    adapter_tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, base: _Optional[_Union[AgreementFigures, _Mapping]] = ..., adapter: _Optional[_Union[AgreementFigures, _Mapping]] = ..., base_tokens: _Optional[_Iterable[str]] = ..., adapter_tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class ProbedPrompt(_message.Message):
    __slots__ = ("prompt", "base_tokens", "adapter_tokens", "largest_change", "mean_change", "finite")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    BASE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_CHANGE_FIELD_NUMBER: _ClassVar[int]
    MEAN_CHANGE_FIELD_NUMBER: _ClassVar[int]
    FINITE_FIELD_NUMBER: _ClassVar[int]
    prompt: str
    base_tokens: _containers.RepeatedScalarFieldContainer[str]
    adapter_tokens: _containers.RepeatedScalarFieldContainer[str]
    largest_change: float
    mean_change: float
    finite: bool
    def __init__(self, prompt: _Optional[str] = ..., base_tokens: _Optional[_Iterable[str]] = ..., adapter_tokens: _Optional[_Iterable[str]] = ..., largest_change: _Optional[float] = ..., mean_change: _Optional[float] = ..., finite: bool = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("undo",)
    UNDO_FIELD_NUMBER: _ClassVar[int]
    undo: bool
    def __init__(self, undo: bool = ...) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ("running", "waiting")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    running: int
    waiting: int
    def __init__(self, running: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class RestartRequest(_message.Message):
    __slots__ = ("boot_id", "wait_ms")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    wait_ms: int
    def __init__(self, boot_id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class RestartReply(_message.Message):
    __slots__ = ("restarts", "running", "waiting")
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    restarts: bool
    running: int
    waiting: int
    def __init__(self, restarts: bool = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class RequestCertificateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CertificateRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    def __init__(self, request: _Optional[bytes] = ...) -> None: ...

class InstallCertificateRequest(_message.Message):
    __slots__ = ("certificate", "authority")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authority: bytes
    def __init__(self, certificate: _Optional[bytes] = ..., authority: _Optional[bytes] = ...) -> None: ...

class InstallCertificateReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PullUsageRequest(_message.Message):
    __slots__ = ("after_seq", "limit")
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after_seq: int
    limit: int
    def __init__(self, after_seq: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class PullUsageReply(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[UsageRecord]
    def __init__(self, records: _Optional[_Iterable[_Union[UsageRecord, _Mapping]]] = ...) -> None: ...

class AckUsageRequest(_message.Message):
    __slots__ = ("request_ids",)
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class AckUsageReply(_message.Message):
    __slots__ = ("acknowledged",)
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    acknowledged: int
    def __init__(self, acknowledged: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("interval_ms", "load_every_ms", "adapter_changes", "prefixes")
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_CHANGES_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    load_every_ms: int
    adapter_changes: bool
    prefixes: bool
    def __init__(self, interval_ms: _Optional[int] = ..., load_every_ms: _Optional[int] = ..., adapter_changes: bool = ..., prefixes: bool = ...) -> None: ...

class HostStatus(_message.Message):
    __slots__ = ("boot_id", "unix_time", "steps", "running", "waiting", "draining", "tokens_per_second", "pool", "adapters", "host_arena_bytes_used", "unacknowledged_usage", "tenants", "refused_early", "forecast", "merging", "prefill_budget", "restarting", "service_gap", "load_times", "first_token", "load_only", "adapter_changes", "adapters_gone", "adapters_sum", "prefixes", "prefixes_kept", "adapter_readers", "experts")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    HOST_ARENA_BYTES_USED_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_USAGE_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_EARLY_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    MERGING_FIELD_NUMBER: _ClassVar[int]
    PREFILL_BUDGET_FIELD_NUMBER: _ClassVar[int]
    RESTARTING_FIELD_NUMBER: _ClassVar[int]
    SERVICE_GAP_FIELD_NUMBER: _ClassVar[int]
    LOAD_TIMES_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOAD_ONLY_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_CHANGES_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_GONE_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_SUM_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_KEPT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_READERS_FIELD_NUMBER: _ClassVar[int]
    EXPERTS_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    unix_time: float
    steps: int
    running: int
    waiting: int
    draining: bool
    tokens_per_second: float
    pool: PoolPages
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterResidency]
    host_arena_bytes_used: int
    unacknowledged_usage: int
    tenants: _containers.RepeatedCompositeFieldContainer[TenantShare]
    refused_early: int
    forecast: ForecastAccuracy
    merging: Merging
    prefill_budget: PrefillBudget
    restarting: bool
    service_gap: ServiceGap
    load_times: LoadTimes
    first_token: FirstTokenForecast
    load_only: bool
    adapter_changes: bool
    adapters_gone: _containers.RepeatedScalarFieldContainer[str]
    adapters_sum: int
    prefixes: _containers.RepeatedScalarFieldContainer[int]
    prefixes_kept: int
    adapter_readers: int
    experts: ResidentExperts
    def __init__(self, boot_id: _Optional[str] = ..., unix_time: _Optional[float] = ..., steps: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., draining: bool = ..., tokens_per_second: _Optional[float] = ..., pool: _Optional[_Union[PoolPages, _Mapping]] = ..., adapters: _Optional[_Iterable[_Union[AdapterResidency, _Mapping]]] = ..., host_arena_bytes_used: _Optional[int] = ..., unacknowledged_usage: _Optional[int] = ..., tenants: _Optional[_Iterable[_Union[TenantShare, _Mapping]]] = ..., refused_early: _Optional[int] = ..., forecast: _Optional[_Union[ForecastAccuracy, _Mapping]] = ..., merging: _Optional[_Union[Merging, _Mapping]] = ..., prefill_budget: _Optional[_Union[PrefillBudget, _Mapping]] = ..., restarting: bool = ..., service_gap: _Optional[_Union[ServiceGap, _Mapping]] = ..., load_times: _Optional[_Union[LoadTimes, _Mapping]] = ..., first_token: _Optional[_Union[FirstTokenForecast, _Mapping]] = ..., load_only: bool = ..., adapter_changes: bool = ..., adapters_gone: _Optional[_Iterable[str]] = ..., adapters_sum: _Optional[int] = ..., prefixes: _Optional[_Iterable[int]] = ..., prefixes_kept: _Optional[int] = ..., adapter_readers: _Optional[int] = ..., experts: _Optional[_Union[ResidentExperts, _Mapping]] = ...) -> None: ...

class ResidentExperts(_message.Message):
    __slots__ = ("resident", "total", "promotions", "demotions", "pairs", "host_pairs", "recent_pairs", "recent_host_pairs", "setting")
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PROMOTIONS_FIELD_NUMBER: _ClassVar[int]
    DEMOTIONS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    HOST_PAIRS_FIELD_NUMBER: _ClassVar[int]
    RECENT_PAIRS_FIELD_NUMBER: _ClassVar[int]
    RECENT_HOST_PAIRS_FIELD_NUMBER: _ClassVar[int]
    SETTING_FIELD_NUMBER: _ClassVar[int]
    resident: int
    total: int
    promotions: int
    demotions: int
    pairs: int
    host_pairs: int
    recent_pairs: int
    recent_host_pairs: int
    setting: str
    def __init__(self, resident: _Optional[int] = ..., total: _Optional[int] = ..., promotions: _Optional[int] = ..., demotions: _Optional[int] = ..., pairs: _Optional[int] = ..., host_pairs: _Optional[int] = ..., recent_pairs: _Optional[int] = ..., recent_host_pairs: _Optional[int] = ..., setting: _Optional[str] = ...) -> None: ...

class FirstTokenForecast(_message.Message):
    __slots__ = ("seconds", "prompt_token_s", "place_s", "free_places")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    PLACE_S_FIELD_NUMBER: _ClassVar[int]
    FREE_PLACES_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    prompt_token_s: float
    place_s: float
    free_places: int
    def __init__(self, seconds: _Optional[float] = ..., prompt_token_s: _Optional[float] = ..., place_s: _Optional[float] = ..., free_places: _Optional[int] = ...) -> None: ...

class ServiceGap(_message.Message):
    __slots__ = ("gap", "bound", "ahead", "behind")
    GAP_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    gap: float
    bound: float
    ahead: str
    behind: str
    def __init__(self, gap: _Optional[float] = ..., bound: _Optional[float] = ..., ahead: _Optional[str] = ..., behind: _Optional[str] = ...) -> None: ...

class LoadTimes(_message.Message):
    __slots__ = ("to_device", "from_disk", "download")
    TO_DEVICE_FIELD_NUMBER: _ClassVar[int]
    FROM_DISK_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_FIELD_NUMBER: _ClassVar[int]
    to_device: LoadTime
    from_disk: LoadTime
    download: LoadTime
    def __init__(self, to_device: _Optional[_Union[LoadTime, _Mapping]] = ..., from_disk: _Optional[_Union[LoadTime, _Mapping]] = ..., download: _Optional[_Union[LoadTime, _Mapping]] = ...) -> None: ...

class LoadTime(_message.Message):
    __slots__ = ("loads", "fixed_s", "seconds_per_byte")
    LOADS_FIELD_NUMBER: _ClassVar[int]
    FIXED_S_FIELD_NUMBER: _ClassVar[int]
    SECONDS_PER_BYTE_FIELD_NUMBER: _ClassVar[int]
    loads: int
    fixed_s: float
    seconds_per_byte: float
    def __init__(self, loads: _Optional[int] = ..., fixed_s: _Optional[float] = ..., seconds_per_byte: _Optional[float] = ...) -> None: ...

class PrefillBudget(_message.Message):
    __slots__ = ("objective_ms", "limited_steps")
    OBJECTIVE_MS_FIELD_NUMBER: _ClassVar[int]
    LIMITED_STEPS_FIELD_NUMBER: _ClassVar[int]
    objective_ms: float
    limited_steps: int
    def __init__(self, objective_ms: _Optional[float] = ..., limited_steps: _Optional[int] = ...) -> None: ...

class Merging(_message.Message):
    __slots__ = ("adapter_digest", "merges", "merged_steps")
    ADAPTER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MERGES_FIELD_NUMBER: _ClassVar[int]
    MERGED_STEPS_FIELD_NUMBER: _ClassVar[int]
    adapter_digest: str
    merges: int
    merged_steps: int
    def __init__(self, adapter_digest: _Optional[str] = ..., merges: _Optional[int] = ..., merged_steps: _Optional[int] = ...) -> None: ...

class TenantShare(_message.Message):
    __slots__ = ("tenant", "weight", "waiting", "running", "input_tokens", "output_tokens", "service", "counter", "owed", "received", "reason", "first_token_s")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    OWED_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    weight: float
    waiting: int
    running: int
    input_tokens: int
    output_tokens: int
    service: float
    counter: float
    owed: float
    received: float
    reason: str
    first_token_s: float
    def __init__(self, tenant: _Optional[str] = ..., weight: _Optional[float] = ..., waiting: _Optional[int] = ..., running: _Optional[int] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., service: _Optional[float] = ..., counter: _Optional[float] = ..., owed: _Optional[float] = ..., received: _Optional[float] = ..., reason: _Optional[str] = ..., first_token_s: _Optional[float] = ...) -> None: ...

class ForecastAccuracy(_message.Message):
    __slots__ = ("requests", "median", "p90")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    P90_FIELD_NUMBER: _ClassVar[int]
    requests: int
    median: float
    p90: float
    def __init__(self, requests: _Optional[int] = ..., median: _Optional[float] = ..., p90: _Optional[float] = ...) -> None: ...

class ListWaitingRequest(_message.Message):
    __slots__ = ("tenant", "limit")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    limit: int
    def __init__(self, tenant: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListWaitingReply(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[WaitingRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[WaitingRequest, _Mapping]]] = ...) -> None: ...

class MapPagesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PageMap(_message.Message):
    __slots__ = ("boot_id", "unix_time", "owners", "owner_of", "lengths")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    OWNER_OF_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    unix_time: float
    owners: _containers.RepeatedCompositeFieldContainer[PageOwner]
    owner_of: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, boot_id: _Optional[str] = ..., unix_time: _Optional[float] = ..., owners: _Optional[_Iterable[_Union[PageOwner, _Mapping]]] = ..., owner_of: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class PageOwner(_message.Message):
    __slots__ = ("kind", "tenant", "adapter_digest", "age_s", "pinned")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FREE: _ClassVar[PageOwner.Kind]
        KV: _ClassVar[PageOwner.Kind]
        CACHED_PREFIX: _ClassVar[PageOwner.Kind]
        ADAPTER: _ClassVar[PageOwner.Kind]
        RESERVED: _ClassVar[PageOwner.Kind]
        STATE: _ClassVar[PageOwner.Kind]
    FREE: PageOwner.Kind
    KV: PageOwner.Kind
    CACHED_PREFIX: PageOwner.Kind
    ADAPTER: PageOwner.Kind
    RESERVED: PageOwner.Kind
    STATE: PageOwner.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    kind: PageOwner.Kind
    tenant: str
    adapter_digest: str
    age_s: float
    pinned: bool
    def __init__(self, kind: _Optional[_Union[PageOwner.Kind, str]] = ..., tenant: _Optional[str] = ..., adapter_digest: _Optional[str] = ..., age_s: _Optional[float] = ..., pinned: bool = ...) -> None: ...

class WaitingRequest(_message.Message):
    __slots__ = ("request_id", "tenant", "adapter_digest", "waited_ms", "predicted_ms", "reason", "text")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    WAITED_MS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    adapter_digest: str
    waited_ms: int
    predicted_ms: int
    reason: str
    text: str
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., adapter_digest: _Optional[str] = ..., waited_ms: _Optional[int] = ..., predicted_ms: _Optional[int] = ..., reason: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class PoolPages(_message.Message):
    __slots__ = ("total", "free", "kv", "cached_prefix", "adapter", "reserved", "state")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    KV_FIELD_NUMBER: _ClassVar[int]
    CACHED_PREFIX_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    total: int
    free: int
    kv: int
    cached_prefix: int
    adapter: int
    reserved: int
    state: int
    def __init__(self, total: _Optional[int] = ..., free: _Optional[int] = ..., kv: _Optional[int] = ..., cached_prefix: _Optional[int] = ..., adapter: _Optional[int] = ..., reserved: _Optional[int] = ..., state: _Optional[int] = ...) -> None: ...

class AdapterResidency(_message.Message):
    __slots__ = ("digest", "tier", "running", "bytes", "rank", "dtype", "experts_resident", "experts_total")
    class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TIER_UNSPECIFIED: _ClassVar[AdapterResidency.Tier]
        DISK: _ClassVar[AdapterResidency.Tier]
        HOST: _ClassVar[AdapterResidency.Tier]
        DEVICE: _ClassVar[AdapterResidency.Tier]
    TIER_UNSPECIFIED: AdapterResidency.Tier
    DISK: AdapterResidency.Tier
    HOST: AdapterResidency.Tier
    DEVICE: AdapterResidency.Tier
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    EXPERTS_RESIDENT_FIELD_NUMBER: _ClassVar[int]
    EXPERTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    digest: str
    tier: AdapterResidency.Tier
    running: int
    bytes: int
    rank: int
    dtype: str
    experts_resident: int
    experts_total: int
    def __init__(self, digest: _Optional[str] = ..., tier: _Optional[_Union[AdapterResidency.Tier, str]] = ..., running: _Optional[int] = ..., bytes: _Optional[int] = ..., rank: _Optional[int] = ..., dtype: _Optional[str] = ..., experts_resident: _Optional[int] = ..., experts_total: _Optional[int] = ...) -> None: ...
