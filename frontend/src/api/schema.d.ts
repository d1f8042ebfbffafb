// Generated from openapi.json by `npm run gen`. Do not edit.

export type AcceptInvitationRequest = {
    name?: string;
    /** @description Password of a new account. */
    password?: string;
    token: string;
};
/** @enum {string} */
export type ActorKind = "user" | "key" | "system";
/** @description An adapter in a list. Rank, targets, size and base are those of the live version, else of the newest. */
export type Adapter = {
    aliases: Alias[];
    /** @description Name that the base model had at the validation; null: the adapter has no version. */
    base_model: string | null;
    /** @description Size of both files in bytes; null: the adapter has no version. */
    bytes: number | null;
    /** Format: date-time */
    created_at: string;
    description: string;
    /** @description Number of the live version; null: none is live. */
    live_version: number | null;
    name: string;
    /** @description Score that a version needs to become live; null: there is no rule. */
    promotion_rule: PromotionRule | null;
    /** @description LoRA rank; null: the adapter has no version. */
    rank: number | null;
    status: AdapterStatus;
    targets: string[];
    versions: VersionSummary[];
    versions_count: number;
};
export type AdapterCounts = {
    ready: number;
    total: number;
};
/** @enum {string} */
export type AdapterDtypeEnum = "auto" | "bf16" | "fp8";
export type AdapterDtypeRequest = {
    adapter_dtype: AdapterDtypeEnum;
};
/** @description Units of an adapter's experts on a host, each of one or a few adjacent experts of a layer. */
export type AdapterExperts = {
    /** @description Number of units in the page pool now; the others are read from host memory. */
    resident: number;
    total: number;
};
export type AdapterManifest = {
    base_model_name: string;
    dtype: string;
    layers: number[];
    num_modules: number;
    num_parameters: number;
    num_tensors: number;
    rank: number;
    /** @description Ranks by target. */
    ranks: {
        [key: string]: number[];
    };
    /** @description Scales by target. */
    scales: {
        [key: string]: number[];
    };
    targets: string[];
    weight_bytes: number;
};
/** @enum {string} */
export type AdapterPlace = "device" | "host" | "disk" | "store";
export type AdapterReference = {
    name: string;
    tenant: string;
};
/** @enum {string} */
export type AdapterStatus = "empty" | "validated" | "staging" | "ready" | "failed" | "archived";
export type AdapterStorage = {
    bytes: number;
    name: string;
    versions: number;
};
/** @description An adapter in a list. Rank, targets, size and base are those of the live version, else of the newest. */
export type AdapterSummary = {
    /** @description Name that the base model had at the validation; null: the adapter has no version. */
    base_model: string | null;
    /** @description Size of both files in bytes; null: the adapter has no version. */
    bytes: number | null;
    /** Format: date-time */
    created_at: string;
    description: string;
    /** @description Number of the live version; null: none is live. */
    live_version: number | null;
    name: string;
    /** @description LoRA rank; null: the adapter has no version. */
    rank: number | null;
    status: AdapterStatus;
    targets: string[];
    versions_count: number;
};
/** @enum {string} */
export type AdapterTier = "device" | "host" | "disk";
export type AdapterUsage = {
    /** @description Name of the adapter; null: the base model without an adapter. */
    adapter: string | null;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    prompt_tokens: number;
    requests: number;
};
export type AddedPasskey = {
    passkey: Passkey;
    /** @description Recovery codes, shown only once; empty unless this was the first second factor. */
    recovery_codes: string[];
};
/** @description The distance of a version's answers on a quantised base from those on the unquantised one, and the base's own. */
export type Agreement = {
    /** @description Figures with the version; null until they are measured. */
    adapter: AgreementFigures | null;
    /** @description Figures without the version; null until they are measured. */
    base: AgreementFigures | null;
    /** @description Whether dequantised weights were compared: the base's checkpoint is quantised and has no others. */
    dequantised: boolean;
    elapsed_ms: number;
    /** @description Norm of what quantisation changes in the matrices of each layer, divided by their norm. */
    layer_changes: number[];
    outcome: AgreementOutcome;
    /** @description Figures of each prompt, in the order of the effect's prompts. */
    prompts: PromptAgreement[];
    /** @description Reason why it differs, or why it was not measured and what to do. */
    reason: string;
};
/** @description Served answers compared with those of the same model without its quantisation. */
export type AgreementFigures = {
    /** @description Number of tokens that the unquantised model chooses too, behind the same text. */
    agreeing: number;
    /** Format: double */
    largest_distance: number;
    /**
     * Format: double
     * @description Mean distance of log-probabilities on the prompts, in nats.
     */
    mean_distance: number;
    /** @description Number of tokens that were generated. */
    tokens: number;
};
/** @enum {string} */
export type AgreementOutcome = "pending" | "agrees" | "differs" | "not_measured";
export type Alias = {
    /** @description Number of the version that answers a part of the requests; null: there is no canary. */
    canary?: number | null;
    /** @description Share of the requests that the canary answers, in per cent; null: there is no canary. */
    canary_percent: number | null;
    /**
     * Format: date-time
     * @description Time at which the canary began; null: there is no canary.
     */
    canary_since: string | null;
    name: string;
    /** @description Number of the version to which a rollback leads; null: there is none. */
    previous?: number | null;
    /** @description Last canary that its figures ended; null: none, or a later one began. */
    rolled_back: CanaryRollback | null;
    /**
     * Format: date-time
     * @description Time since which the alias names this version, whatever canary it had.
     */
    updated_at: string;
    version: number;
};
export type AliasTargetRequest = {
    version: number;
};
/** @description The origins of web pages that may call inference with this tenant's keys. */
export type AllowedOrigins = {
    /** @description Origins like https://app.example.org, without a path. None by default. */
    origins: string[];
};
/** @description The origins of web pages that may call inference with this tenant's keys. */
export type AllowedOriginsRequest = {
    /** @description Origins like https://app.example.org, without a path. None by default. */
    origins: string[];
};
/** @description An item of an evaluation set; answers are null where only probabilities were requested. */
export type AnsweredItem = {
    /** @description Answer of the base model; null: only probabilities were requested. */
    base: string | null;
    expected: string;
    /** @description Line of the item in the evaluation set, from 1. */
    line: number;
    /** @description Answer of the live version; null: none was compared, or only probabilities were requested. */
    live: string | null;
    /** @description The prompt, or its end if it is long. */
    prompt: string;
    /**
     * Format: double
     * @description Score of the version's answer.
     */
    score: number;
    /** @description Answer of the version; null: only probabilities were requested. */
    version: string | null;
};
/** @enum {string} */
export type ApiEndpoint = "chat.completions" | "completions" | "embeddings";
export type ApiKey = {
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that created the key; null: the account no longer exists. */
    created_by?: string | null;
    /**
     * Format: date-time
     * @description Time from which the key is refused; null: it does not expire.
     */
    expires_at: string | null;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description Time of the last request, up to a minute late; null: the key was never used.
     */
    last_used_at: string | null;
    name: string;
    /** @description Public part of the key: `lk_<prefix>_...`. */
    prefix: string;
    /**
     * Format: date-time
     * @description Time until which the secret before the last rotation is accepted; null: the key was never rotated.
     */
    previous_until: string | null;
    /**
     * Format: date-time
     * @description Time at which the key was revoked; null: it was not.
     */
    revoked_at: string | null;
    /**
     * Format: date-time
     * @description Time of the last rotation; null: the key was never rotated.
     */
    rotated_at: string | null;
    scopes: KeyScope[];
};
/** @description The settings of the inference API for this tenant's requests. */
export type ApiSettings = {
    /** @description Store no answer of /v1/responses, whatever its request says: previous_response_id has no use then. */
    never_store_responses: boolean;
    /** @description Refuse requests with unknown fields, instead of leaving the fields out and naming them in the header X-Lorikeet-Ignored. */
    refuse_unknown_fields: boolean;
};
/** @description The settings of the inference API for this tenant's requests. */
export type ApiSettingsRequest = {
    /** @description Store no answer of /v1/responses, whatever its request says: previous_response_id has no use then. */
    never_store_responses: boolean;
    /** @description Refuse requests with unknown fields, instead of leaving the fields out and naming them in the header X-Lorikeet-Ignored. */
    refuse_unknown_fields: boolean;
};
export type App = {
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description Time at which a code of the app was last accepted; null: never.
     */
    last_used_at: string | null;
};
export type ApprovedBaseModelRequest = {
    /** @description Name of the host whose current base model is to be served. */
    host: string;
    /** @description Name that callers put into `model`; empty: its name when it was served before, or else the engine's name for it. */
    name?: string;
};
export type AppSetup = {
    /** @description Rows of the QR code: 1 is a dark module. */
    qr: string[];
    /** @description Secret in base32, to type into an app that cannot scan. */
    secret: string;
    /** @description The otpauth:// URI that the QR code holds. */
    uri: string;
};
/** @description An adapter that can be restored, with the versions that were archived with it. */
export type ArchivedAdapter = {
    /** Format: date-time */
    archived_at: string;
    description: string;
    /** Format: uuid */
    id: string;
    /** Format: date-time */
    readonly kept_until: string;
    name: string;
    versions_count: number;
};
/** @enum {string} */
export type AtLimitEnum = "warn" | "refuse";
/**
 * @description The attainment of the current objective by answered requests, as the engine measured them. Failed requests count
 *     as measured and as not met.
 */
export type Attainment = {
    /**
     * Format: double
     * @description Share of measured requests that met the objective; null: no objective, or none measured.
     */
    attainment: number | null;
    /** @description Requests that may miss the objective; null: there is no objective. */
    budget: ErrorBudget | null;
    burn: BurnRate[];
    by_day: AttainmentDay[];
    measured: number;
    /** @description Number of measured requests that met the objective; null: there is no objective. */
    met: number | null;
    /** @description Objective in milliseconds; null: there is none. */
    objective_ms: number | null;
    percentiles: Percentiles;
};
export type AttainmentDay = {
    /**
     * Format: double
     * @description Share of measured requests that met the objective; null: no objective, or none measured.
     */
    attainment: number | null;
    /**
     * Format: date
     * @description Day (UTC) that the figures cover.
     */
    date: string;
    measured: number;
};
export type AuditActor = {
    id: string;
    kind: ActorKind;
    label: string;
};
export type AuditEvent = {
    /** @description Action as "noun.verb", e.g. "version.promote". */
    action: string;
    actor: AuditActor;
    /** Format: date-time */
    created_at: string;
    detail: {
        [key: string]: unknown;
    };
    id: number;
    request_id: string;
    target: AuditTarget;
    /** @description Short name of the tenant; null: the event belongs to none. */
    tenant?: string | null;
};
export type AuditPage = {
    events: AuditEvent[];
    /** @description Value of `before` for the next, older page; null: there is none. */
    next: number | null;
};
export type AuditTarget = {
    id: string;
    kind: string;
    label: string;
};
/** @description A base model that the installation serves. */
export type BaseModel = {
    /** @description Digests of other base models whose adapters this base model serves too. */
    adapters_of: string[];
    /** Format: date-time */
    decided_at: string;
    decided_by: string;
    digest: string;
    name: string;
    /** @description Seconds without a request after which the base model needs no host; 0: it never sleeps. */
    sleeps_after_s: number;
};
/** @enum {string} */
export type BaseModelState = "served" | "waiting" | "withdrawn";
export type BaseModelUsage = {
    /** @description Current name of the base model; null: requests without a recorded base model. */
    base_model: string | null;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    prompt_tokens: number;
    requests: number;
};
export type Batch = {
    /** @description Return the number of lines of the file that are not valid requests. */
    readonly bad_lines: number;
    readonly counts: RequestCounts;
    /** Format: date-time */
    created_at: string;
    endpoint: BatchEndpoint;
    /** @description File of the requests that failed, with their errors; null: none was written, or it was deleted. */
    error_file: StoredFile | null;
    /**
     * Format: date-time
     * @description Time at which requests of the batch that have not run fail with the code batch_expired.
     */
    expires_at: string;
    /** @description Id of the batch in /v1/batches. */
    id: string;
    /** @description File of the requests; null: it was deleted. */
    input_file: StoredFile | null;
    /** @description Name of the API key whose requests these are. */
    key: string;
    /** @description File of the answers; null: none was written, or it was deleted. */
    output_file: StoredFile | null;
    state: BatchState;
};
/** @enum {string} */
export type BatchEndpoint = "/v1/chat/completions" | "/v1/completions" | "/v1/embeddings";
/** @enum {string} */
export type BatchState = "validating" | "in_progress" | "finalizing" | "completed" | "failed" | "expired" | "cancelling" | "cancelled";
/** @description The credentials for a bucket. The keys are never shown. */
export type BucketCredentials = {
    /** @description Name of the bucket. Credentials stored for it before are replaced. */
    bucket: string;
    /** Format: date-time */
    readonly created_at: string;
    /**
     * @description Address of the server; empty for Amazon S3.
     * @default
     */
    endpoint: string;
    /** @default us-east-1 */
    region: string;
};
/** @description The credentials for a bucket. The keys are never shown. */
export type BucketCredentialsRequest = {
    access_key_id: string;
    /** @description Name of the bucket. Credentials stored for it before are replaced. */
    bucket: string;
    /** @description Address of the server; empty for Amazon S3. */
    endpoint?: string;
    /** @description By default us-east-1. */
    region?: string;
    secret_access_key: string;
    /** @description Session token of temporary credentials; empty for permanent ones. */
    session_token?: string;
};
export type BudgetReport = {
    /** @description ISO 4217 code of the currency; null: there are no prices, so no budget can be set. */
    currency: string | null;
    /** @description Budgets that the operator set for the tenant. */
    granted: BudgetStates;
    /** @description Unrevoked API keys with a budget: the 50 with the smallest share of it left. */
    keys: KeyBudgets[];
    /** @description Number of unrevoked API keys with a budget. */
    keys_total: number;
    /** @description Budgets that the tenant set for itself; the operator's budgets apply as well. */
    own: BudgetStates;
};
export type BudgetRequest = {
    /** @description Percentages of the amount at which webhooks and the console send an alert. */
    alerts?: number[];
    /**
     * Format: int64
     * @description Amount of the budget, in millionths of the price list's currency.
     */
    amount_micros: number;
    /** @description Action when the amount is spent; refuse: 402 `budget_exceeded`; warn: only send alerts. */
    at_limit?: AtLimitEnum;
};
/** @description The budgets of a day and a month. One that is left out or null is lifted. */
export type BudgetsRequest = {
    /** @description Budget of a UTC day; null: no budget. */
    day?: BudgetRequest | null;
    /** @description Budget of a UTC month; null: no budget. */
    month?: BudgetRequest | null;
};
export type BudgetState = {
    /** @description Percentages of the amount at which webhooks and the console send an alert. */
    alerts?: number[];
    /**
     * Format: int64
     * @description Amount of the budget, in millionths of the price list's currency.
     */
    amount_micros: number;
    /**
     * @description Action when the amount is spent; refuse: 402 `budget_exceeded`; warn: only send alerts.
     * @default refuse
     */
    at_limit: AtLimitEnum;
    /** @description Highest alert threshold that is reached, in per cent of the amount; null: none. */
    reached: number | null;
    /** @description Amount spent in the period, in millionths of the currency, without running requests. */
    spent_micros: number;
};
export type BudgetStates = {
    /** @description Budget of a UTC day; null: there is none. */
    day: BudgetState | null;
    /** @description Budget of a UTC month; null: there is none. */
    month: BudgetState | null;
};
export type BurnRate = {
    measured: number;
    /** @description Number of measured requests that missed the objective; null: there is no objective. */
    missed: number | null;
    /**
     * Format: double
     * @description Missed requests / those that the target allows: 1 uses up the budget exactly; null: unknown.
     */
    rate: number | null;
    /** @description Length of the window before now: 1h, 6h, 1d or 7d. */
    window: string;
};
/** @enum {string} */
export type Cadence = "week" | "month";
/** @description The figures of a canary and of the alias's regular version; null without a canary. */
export type CanaryComparison = {
    /** @description Figures of the canary; null: there is no canary. */
    canary: VersionStats | null;
    /** @description Number of requests of each version that a comparison needs. */
    least_requests: number;
    /** @description Figures of the alias's regular version; null: there is no canary. */
    own: VersionStats | null;
};
/** @description The last canary that was ended for its figures. */
export type CanaryRollback = {
    /** Format: date-time */
    at: string;
    code: string;
    message: string;
    version: number;
};
export type CanaryTargetRequest = {
    /** @description Share of the alias's requests, in per cent. */
    percent: number;
    version: number;
};
/** @enum {string} */
export type Capability = "view" | "infer" | "adapters.write" | "keys.write" | "members.write" | "budgets.write" | "tenant.write" | "webhooks.write" | "exports.write" | "audit.read" | "transcripts.read" | "transcripts.write" | "member" | "operate";
export type ChangePasswordRequest = {
    current_password: string;
    password: string;
};
/** @description The chat template of an adapter, by which its chats are rendered. */
export type ChatTemplate = {
    source: string;
    special_tokens: {
        [key: string]: string;
    };
    /** @description Template for requests with tools, if it is another one. */
    tool_source: string;
};
export type CodeRequest = {
    /** @description A code of the authenticator app. */
    code: string;
};
/** @description Milliseconds that a request would wait for an adapter from each tier; null while the host has not measured it. */
export type ColdStarts = {
    /**
     * Format: double
     * @description Milliseconds for an adapter in device memory; null: not measured.
     */
    device: number | null;
    /**
     * Format: double
     * @description Milliseconds for an adapter on the host's disk; null: not measured.
     */
    disk: number | null;
    /**
     * Format: double
     * @description Milliseconds for an adapter in host memory; null: not measured.
     */
    host: number | null;
    /**
     * Format: double
     * @description Milliseconds for an adapter in the artifact store; null: not measured.
     */
    store: number | null;
};
export type CreatedApiKey = {
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that created the key; null: the account no longer exists. */
    created_by?: string | null;
    /**
     * Format: date-time
     * @description Time from which the key is refused; null: it does not expire.
     */
    expires_at: string | null;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description Time of the last request, up to a minute late; null: the key was never used.
     */
    last_used_at: string | null;
    name: string;
    /** @description Public part of the key: `lk_<prefix>_...`. */
    prefix: string;
    /**
     * Format: date-time
     * @description Time until which the secret before the last rotation is accepted; null: the key was never rotated.
     */
    previous_until: string | null;
    /**
     * Format: date-time
     * @description Time at which the key was revoked; null: it was not.
     */
    revoked_at: string | null;
    /**
     * Format: date-time
     * @description Time of the last rotation; null: the key was never rotated.
     */
    rotated_at: string | null;
    scopes: KeyScope[];
    /** @description The whole key, which is shown only once and not stored. */
    secret: string;
};
export type CreatedInvitation = {
    /** Format: date-time */
    created_at: string;
    /** Format: email */
    email: string;
    /** Format: date-time */
    expires_at: string;
    /** Format: uuid */
    id: string;
    /** @description E-mail address of the account that invited the person; null: the account no longer exists. */
    invited_by?: string | null;
    /** @description Link for the invited person alone, shown only once. */
    link: string;
    /** @description Whether the link is mailed to the person; without a mail server, pass it on yourself. */
    mailed: boolean;
    role: Role;
};
export type CreatedJoinToken = {
    /** Format: date-time */
    created_at: string;
    created_by: string;
    /** Format: date-time */
    expires_at: string;
    /** @description Name under which the host joins; empty: the machine chooses a new name. */
    host: string;
    /** Format: uuid */
    id: string;
    /** @description URL to pass to the engine's option `--join`. */
    join_url: string;
    readonly state: string;
    /** @description The token's secret text, which only this response contains. */
    token: string;
    /** @description Name of the host that joined with the token; null: none. */
    used_by?: string | null;
};
export type CreatedTenant = {
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description Time of the deletion; null: the tenant is not deleted.
     */
    deleted_at: string | null;
    /** @description Invitation link of the owner, shown only once. */
    link: string;
    /** @description Whether the link is mailed to the owner, which needs a mail server. */
    mailed: boolean;
    name: string;
    slug: string;
    state: TenantState;
    /**
     * Format: date-time
     * @description Time since which the tenant's keys are refused and its members can only read; null: not suspended.
     */
    suspended_at: string | null;
    suspended_for: string;
    /** Format: double */
    weight: number;
};
export type DayUsage = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /**
     * Format: date
     * @description Day (UTC) that the figures cover.
     */
    date: string;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    prompt_tokens: number;
    requests: number;
};
export type Delivery = {
    attempts: number;
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description Time at which the endpoint accepted the message; null: it did not.
     */
    delivered_at: string | null;
    /** Format: uuid */
    event: string;
    /** Format: uuid */
    id: string;
    log: DeliveryAttempt[];
    /** Format: date-time */
    next_attempt_at: string;
    /** @description The message's `data`. */
    payload: unknown;
    state: DeliveryState;
    type: EventType;
};
export type DeliveryAttempt = {
    /** Format: date-time */
    at: string;
    duration_ms: number;
    error: string;
    /** @description HTTP status of the answer; null: there was no answer, see `error`. */
    status: number | null;
};
/** @enum {string} */
export type DeliveryState = "pending" | "delivered" | "failed";
/** @description A session of the calling person. Its key is never sent. */
export type Device = {
    /** @description Network address from which the session was last used; empty if it is not recorded. */
    address: string;
    /** Format: date-time */
    created_at: string;
    /** @description Whether this session sent the request. */
    current: boolean;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description Time of the last use, accurate to five minutes.
     */
    last_seen_at: string;
    /** @description User-Agent header of the browser. */
    user_agent: string;
};
/** @description A host's comparison of a version in FP8 with itself in the dtype of the host's model. */
export type DtypeReport = {
    /** @description Number of these after which the most likely token is the same. */
    agreeing: number;
    /** Format: date-time */
    at: string;
    elapsed_ms: number;
    /** Format: double */
    largest_distance: number;
    /**
     * Format: double
     * @description The least share of agreeing tokens with which FP8 is served.
     */
    least_agreeing: number;
    /**
     * Format: double
     * @description Mean distance of log-probabilities, in nats.
     */
    mean_distance: number;
    /**
     * Format: double
     * @description The largest mean distance with which FP8 is served.
     */
    most_distance: number;
    outcome: AgreementOutcome;
    /** @description Reason why it is not served in FP8 with `auto`, or was not measured. */
    reason: string;
    /** @description Number of tokens of prompts and answers that were compared. */
    tokens: number;
};
export type EndPricesRequest = {
    /** @description Digest of the base model whose own prices end. */
    base_model_digest: string;
    /**
     * Format: date
     * @description First day on which the installation's list applies to the base model, from midnight UTC.
     */
    effective_on: string;
};
export type ErrorBudget = {
    /**
     * Format: double
     * @description Number of requests that may miss the objective.
     */
    allowed: number;
    /**
     * Format: double
     * @description Share of the error budget that is left; below 0: overdrawn; null: nothing was measured.
     */
    left: number | null;
    missed: number;
};
export type Evaluation = {
    adapter: string;
    /** @description Id of the batch that runs the requests; null: they have not begun, or the batch was deleted. */
    readonly batch: string | null;
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description Time at which the evaluation was completed, failed or cancelled; null: it is open.
     */
    ended_at: string | null;
    /** Format: uuid */
    id: string;
    /** @description API key with which the requests are counted. */
    key: string;
    /** @description Reason why the evaluation waits or failed; null: neither. */
    problem: Problem | null;
    /** @description Result of the evaluation; null: it is not completed. */
    score: Score | null;
    set: string;
    state: EvaluationState;
    /**
     * Format: uuid
     * @description Id of the upload whose version is evaluated; null: the evaluation was started for a version.
     */
    upload: string | null;
    /** @description Number of the version; null: its requests have not begun, and the evaluation is one of an upload. */
    version?: number | null;
};
/** @enum {string} */
export type EvaluationMetric = "exact" | "contains" | "logprob";
export type EvaluationSet = {
    /** Format: date-time */
    created_at: string;
    /** @description Number of items in the set. */
    items: number;
    /** @description Maximum number of tokens of an answer. */
    max_tokens: number;
    /** @description exact: the answer is the expected text, white space around either ignored; contains: the answer contains it; logprob: the mean natural log-probability of its tokens after the prompt. A score is the mean over all items. */
    metric: EvaluationMetric;
    name: string;
};
/** @enum {string} */
export type EvaluationState = "waiting" | "running" | "completed" | "failed" | "cancelled";
/** @enum {string} */
export type EventType = "upload.accepted" | "upload.refused" | "version.ready" | "version.failed" | "version.flagged" | "version.promoted" | "canary.failed" | "adapter.archived" | "quota.warning" | "quota.exhausted" | "budget.alert" | "export.ready" | "test";
export type Export = {
    bytes: number;
    /** Format: date-time */
    created_at: string;
    file_name: string;
    /** Format: date */
    first: string;
    grain: Grain;
    /** Format: uuid */
    id: string;
    /** Format: date */
    last: string;
    lines: number;
    /** @description Place of single requests of archived months; empty: none of the export are archived. */
    readonly note: string;
    /**
     * Format: date-time
     * @description Time at which the file was complete; null: it is not yet.
     */
    ready_at: string | null;
    /** @description True: the export was made by a schedule. */
    scheduled: boolean;
    state: ExportState;
};
export type ExportSchedule = {
    cadence: Cadence;
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that created the schedule; null: the account no longer exists. */
    created_by?: string | null;
    grain: Grain;
    /** Format: uuid */
    id: string;
};
/** @enum {string} */
export type ExportState = "queued" | "running" | "ready" | "failed";
export type Fairness = {
    /** @description Hosts on which two tenants waited in the window, or wait now. */
    hosts: HostFairness[];
    /** Format: date-time */
    since: string;
    step_s: number;
    /** Format: date-time */
    until: string;
};
/** @enum {string} */
export type FilePurpose = "batch" | "batch_output";
/** @description The first steps of a new tenant, and whether each is done. */
export type FirstSteps = {
    called: boolean;
    invited: boolean;
    /** @description Whether the tenant or a key has a limit or a budget. */
    limited: boolean;
    uploaded: boolean;
};
export type ForgotPasswordRequest = {
    /** Format: email */
    email: string;
};
/** @enum {string} */
export type Grain = "day" | "hour";
/** @description An engine host by its last heartbeat: its load as a whole, and the tenant's own adapters on it. */
export type Host = {
    adapters: ResidentAdapter[];
    /** @description Number of the adapters on the host; `adapters` has at most 256 of them, the busiest first. */
    adapters_total: number;
    boot_id: string;
    device: string;
    /** @description Part of the host's status; null: the engine does not report it. */
    experts: ResidentExperts | null;
    /**
     * Format: date-time
     * @description Time of the last heartbeat; null: there was none yet.
     */
    last_seen: string | null;
    load_times?: LoadTime[];
    model: string;
    name: string;
    /** @description Bytes of one page over all layers. */
    page_bytes: number;
    pool: Pool;
    /** @description Why the host gets neither adapters nor requests; null: it is not in quarantine. */
    quarantine: Quarantine | null;
    /** @description Progress of a requested restart; null: none is requested, or it is done. */
    restart?: RestartState | null;
    running: number;
    /** @description Service that operators want of the host; cordoned and drained hosts get no new adapters or requests. */
    service: HostService;
    /** @description The tenant's share of the engine's service; null: the engine reports none for the tenant. */
    share?: Share | null;
    state: HostState;
    /** Format: double */
    tokens_per_second: number;
    waiting: number;
};
export type HostFairness = {
    name: string;
    /** @description Gap in the host's latest status; null: no two tenants wait, or the host is offline. */
    now: ServiceGap | null;
    points: ServiceGapPoint[];
};
/** @description A map of a host's pool: the owner of each page. */
export type HostPages = {
    /**
     * Format: double
     * @description Time of the map in seconds since 1970.
     */
    at: number;
    boot_id: string;
    /** @description Times of the maps cached in the last ten minutes, in seconds since 1970, the oldest first. */
    kept: number[];
    owners: PageOwner[];
    page_bytes: number;
    /** @description Pairs of integers in one list: an index into `owners`, then the number of adjacent pages of that owner. */
    runs: number[];
    total: number;
};
export type HostPin = {
    bytes: number;
    host: string;
    /** @description Whether the host keeps the live version loaded now. */
    pinned: boolean;
};
export type HostPrefix = {
    /** @description Bytes of the host's device memory that the prefix takes. */
    bytes: number;
    /** @description Why the prefix could not be computed; null unless the state is `failed`. */
    error: Problem | null;
    host: string;
    /** @description `computing`: it is being computed, or waits until requests leave time and room. `no_room`: older pins fill the host's share for pins. `over_quota`: older pins fill the tenant's quota. `off`: the host keeps no prefixes. `waiting`: the host has not reported it yet. */
    state: HostPrefixStateEnum;
};
/** @enum {string} */
export type HostPrefixStateEnum = "kept" | "computing" | "no_room" | "over_quota" | "failed" | "off" | "waiting";
/** @enum {string} */
export type HostService = "serving" | "cordoned" | "drained";
/** @enum {string} */
export type HostState = "unknown" | "online" | "draining" | "offline";
/** @description A branch: whenever it moves, the adapter gets a new version. */
export type HubFollow = {
    /**
     * Format: date-time
     * @description Time of the last check of the branch; null: it was not checked yet.
     */
    readonly checked_at: string | null;
    /** @description Commit that was imported last; empty: none yet. */
    readonly commit: string;
    /** Format: date-time */
    readonly created_at: string;
    /** Format: uuid */
    readonly id: string;
    /** @description Name of the adapter. */
    name: string;
    /** @description Reason why the last check of the branch failed, or why the import of its commit was refused or cancelled; null: neither. */
    readonly problem: Problem | null;
    /** @description Branch to follow, as hub:org/name@branch or hub:org/name/folder@branch. */
    source: string;
};
/** @description A branch: whenever it moves, the adapter gets a new version. */
export type HubFollowRequest = {
    /** @description Name of the adapter. */
    name: string;
    /** @description Branch to follow, as hub:org/name@branch or hub:org/name/folder@branch. */
    source: string;
};
/** @description A repository that a request named, and the state of its import. */
export type HubModel = {
    adapter: string;
    name: string;
    /** Format: date-time */
    requested_at: string;
    state: string;
    /** Format: uuid */
    upload: string;
    /** @description Number of the imported version; null: the import is not accepted. */
    version?: number | null;
};
/** @description The permission for requests to name repositories of the Hub as their model. */
export type HubModels = {
    enabled: boolean;
    /** @description Models that were imported last. */
    readonly models: HubModel[];
    /** @description Organisations that are allowed; empty = all. */
    organizations?: string[];
};
/** @description The permission for requests to name repositories of the Hub as their model. */
export type HubModelsRequest = {
    enabled: boolean;
    /** @description Organisations that are allowed; empty = all. */
    organizations?: string[];
};
export type HubToken = {
    readonly set: boolean;
};
export type HubTokenRequest = {
    token: string;
};
/** @description A proof of identity: one of the three. The password counts only for people without a second factor. */
export type IdentityConfirmationRequest = {
    /** @description A code of the authenticator app, or a recovery code. */
    code?: string;
    /** @description PublicKeyCredential.toJSON() of navigator.credentials.get. */
    credential?: {
        [key: string]: unknown;
    };
    password?: string;
};
export type Invitation = {
    /** Format: date-time */
    created_at: string;
    /** Format: email */
    email: string;
    /** Format: date-time */
    expires_at: string;
    /** Format: uuid */
    id: string;
    /** @description E-mail address of the account that invited the person; null: the account no longer exists. */
    invited_by?: string | null;
    role: Role;
};
/** @description An invitation as its recipient sees it before accepting. */
export type InvitationDetails = {
    /** Format: email */
    email: string;
    /** Format: date-time */
    expires_at: string;
    /** @description Whether the person has an account and signs in, instead of choosing a password. */
    has_account: boolean;
    /** @description E-mail address of the account that invited the person; null: the account no longer exists. */
    invited_by?: string | null;
    role: Role;
    tenant: string;
    tenant_name: string;
};
export type InvitationTokenRequest = {
    token: string;
};
export type Joined = {
    /** @description Certificate of the authority that certifies the control plane, in PEM. */
    authority: string;
    /** @description Certificate of the host, in PEM. */
    certificate: string;
    /** Format: date-time */
    expires_at: string;
    name: string;
};
/** @description The membership of a host that joined, with a credential of its own. */
export type JoinedHost = {
    /** Format: date-time */
    at: string;
    /**
     * Format: date-time
     * @description Time until which the host's certificate is valid; null: the host's credential was revoked.
     */
    certificate_expires_at: string | null;
    /**
     * Format: date-time
     * @description Time at which the host's credential was revoked; null: it was not.
     */
    revoked_at: string | null;
};
export type JoinRequest = {
    /** @description Address at which the control plane reaches the engine: host:port. */
    address: string;
    /** @description Certificate request of a P-256 key: PKCS #10 in PEM. */
    certificate_request: string;
    name: string;
    token: string;
    /** @description Version of the protocol between control plane and engines that the engine supports. By default 0. */
    wire_version?: number;
};
export type JoinToken = {
    /** Format: date-time */
    created_at: string;
    created_by: string;
    /** Format: date-time */
    expires_at: string;
    /** @description Name under which the host joins; empty: the machine chooses a new name. */
    host: string;
    /** Format: uuid */
    id: string;
    readonly state: string;
    /** @description Name of the host that joined with the token; null: none. */
    used_by?: string | null;
};
export type KeyBudgets = {
    /** @description Budget of a UTC day; null: there is none. */
    day: BudgetState | null;
    /** Format: uuid */
    id: string;
    /** @description Budget of a UTC month; null: there is none. */
    month: BudgetState | null;
    name: string;
    prefix: string;
};
/** @description The limits of one key. The tenant's limits apply as well. */
export type KeyLimits = {
    /**
     * Format: int64
     * @description Maximum number of choices that run at once: n for each prompt of a request. Null = no limit.
     */
    concurrency?: number | null;
    /**
     * Format: int64
     * @description Maximum number of output tokens for each choice of a request. Null = no limit.
     */
    max_output_tokens?: number | null;
    /**
     * Format: int64
     * @description Maximum number of requests within any 60 seconds. Null = no limit.
     */
    requests_per_minute?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens in a UTC day. Null = no limit.
     */
    tokens_per_day?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens within any 60 seconds. Null = no limit.
     */
    tokens_per_minute?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens in a UTC month. Null = no limit.
     */
    tokens_per_month?: number | null;
};
/** @description The limits of one key. The tenant's limits apply as well. */
export type KeyLimitsRequest = {
    /**
     * Format: int64
     * @description Maximum number of choices that run at once: n for each prompt of a request. Null = no limit.
     */
    concurrency?: number | null;
    /**
     * Format: int64
     * @description Maximum number of output tokens for each choice of a request. Null = no limit.
     */
    max_output_tokens?: number | null;
    /**
     * Format: int64
     * @description Maximum number of requests within any 60 seconds. Null = no limit.
     */
    requests_per_minute?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens in a UTC day. Null = no limit.
     */
    tokens_per_day?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens within any 60 seconds. Null = no limit.
     */
    tokens_per_minute?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens in a UTC month. Null = no limit.
     */
    tokens_per_month?: number | null;
};
/** @description The current usage. Null means not counted: nothing limits it, or the counters cannot be reached. */
export type KeyLimitUsage = {
    /** @description Choices that run now; null: not counted. */
    concurrency: number | null;
    /** @description Requests in the last 60 seconds; null: not counted. */
    requests_per_minute: number | null;
    tokens_per_day: number;
    /** @description Tokens in the last 60 seconds; running requests count with all they may use; null: not counted. */
    tokens_per_minute: number | null;
    tokens_per_month: number;
};
/** @enum {string} */
export type KeyScope = "adapters.write" | "infer" | "view";
export type KeyUsage = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    /** @description Name of the API key; null: members in the console. */
    key: string | null;
    /** @description Prefix of the API key; null: members in the console. */
    prefix: string | null;
    prompt_tokens: number;
    requests: number;
};
export type KeyUsageAgainstLimits = {
    /** Format: uuid */
    id: string;
    limits: KeyLimits;
    name: string;
    prefix: string;
    used: KeyLimitUsage;
};
/** @description The end of an engine that did not stop normally. */
export type LastEnd = {
    /**
     * Format: date-time
     * @description Time at which the engine ended; null: not known.
     */
    at: string | null;
    reason: string;
};
export type Latency = {
    first_token: Percentiles;
    inter_token: Percentiles;
};
export type LatencyObjectives = {
    /** @description Objective for the time to the first token, in milliseconds; null: none. */
    first_token_ms?: number | null;
    /** @description Objective for the mean time between the tokens of a request, in milliseconds; null: none. */
    inter_token_ms?: number | null;
    /**
     * Format: double
     * @description Share of requests that should meet each objective.
     * @default 0.99
     */
    target: number;
};
export type LatencyObjectivesRequest = {
    /** @description Objective for the time to the first token, in milliseconds; null: none. */
    first_token_ms?: number | null;
    /** @description Objective for the mean time between the tokens of a request, in milliseconds; null: none. */
    inter_token_ms?: number | null;
    /**
     * Format: double
     * @description Share of requests that should meet each objective. By default 0.99.
     */
    target?: number;
};
export type LineError = {
    code: string;
    /** @description Line number in the file, from 1; 0 = the file as a whole. */
    line: number;
    message: string;
    /** @description Name of the field at fault; null: none is. */
    param: string | null;
};
/** @description A person as the sign-in provider knows them. */
export type LinkedIdentity = {
    /**
     * Format: date-time
     * @description Time of the first sign-in by it.
     */
    created_at: string;
    id: number;
    /** @description Address of the provider. */
    issuer: string;
    /** @description Identifier of the person at the provider. */
    subject: string;
};
/** @description A base model that is served, was, or could be. */
export type ListedBaseModel = {
    /** @description Number of adapters of all tenants that have versions in use for the base model. */
    adapters: number;
    /**
     * Format: date-time
     * @description Time of the last decision; null: there was none yet.
     */
    decided_at: string | null;
    /** @description Name of the operator who decided last; null: nobody did yet. */
    decided_by: string | null;
    digest: string;
    /** @description Names of the active hosts that have the base model. */
    hosts: string[];
    /** @description Number of hosts that take requests for the base model now. */
    hosts_online: number;
    /** @description Tokens of prompt and output together, the lowest limit of its hosts; null: the base model is not served. */
    max_context: number | null;
    /** @description Name that callers put into `model`. */
    name: string;
    /** @description Seconds without a request after which the base model needs no host; 0: it never sleeps. */
    sleeps_after_s: number;
    /** @description Whether the base model is served; `waiting`: hosts have it, and no operator has approved it. */
    state: BaseModelState;
    /** @description Whether the base model needs a host now. */
    wanted: boolean;
    /**
     * Format: date-time
     * @description Time from which the base model is not served; null: it was not withdrawn.
     */
    withdrawn_at: string | null;
};
export type LiveScore = {
    /** Format: double */
    score: number;
    version: number;
};
/** @enum {string} */
export type LoadStep = "to_device" | "from_disk" | "download";
/** @description The time to bring an adapter one tier nearer to the device on a host: a fixed part, and its bytes at a rate. */
export type LoadTime = {
    /** @description Bytes per second beyond the fixed part; null: not known, or more bytes took no longer. */
    bytes_per_second: number | null;
    /** Format: double */
    fixed_ms: number;
    /** @description Number of such loads since the engine started; 0: the times are not known. */
    loads: number;
    /** @description Kind of load: `to_device` from host memory, `from_disk` to host memory, `download` from the artifact store. */
    step: LoadStep;
};
export type LoginRequest = {
    /** Format: email */
    email: string;
    password: string;
};
export type Member = {
    /** @description False for an account made from an invitation, until its holder used a reset link or the provider. */
    address_proven: boolean;
    /** Format: email */
    email: string;
    /** Format: uuid */
    id: string;
    /** Format: date-time */
    joined_at: string;
    name: string;
    role: Role;
    /** @description Whether the person signs in with a second factor. */
    second_factor: boolean;
};
export type Methods = {
    /** @description Whether codes of an authenticator app are accepted. */
    app: boolean;
    /** @description Whether a passkey is accepted at this address. */
    passkey: boolean;
    /** @description Whether the password confirms: without a second factor. */
    password: boolean;
};
/** @description A name that can be used as `model`. */
export type Model = {
    /** @description Name of the adapter; null: the model is a base model. */
    adapter: string | null;
    /** @description Further ids of the same adapter. */
    aliases: string[];
    /** @description Name of the base model on which the model runs, for a base model its own; null: it is not served. */
    base_model?: string | null;
    /** Format: date-time */
    created_at: string;
    description: string;
    id: string;
    kind: ModelKind;
    /** @description Number of the adapter's live version; null: the model is a base model. */
    version: number | null;
};
/** @enum {string} */
export type ModelKind = "base" | "adapter";
export type NewApiKeyRequest = {
    /**
     * Format: date-time
     * @description Time from which the key is refused; null: it does not expire.
     */
    expires_at?: string | null;
    name: string;
    /** @description Scopes of the key, any of adapters.write, infer, view; left out: all of them. */
    scopes?: string[];
};
export type NewBaseModelRequest = {
    /** @description Name of the host whose current base model is to be served. */
    host: string;
    /** @description Whether adapters of the replaced base models are kept, because the new one is the same model, saved anew. By default false. */
    keep_adapters?: boolean;
};
/** @description The multipart form of a new batch. */
export type NewBatchRequest = {
    endpoint: BatchEndpoint;
    /**
     * Format: binary
     * @description A JSON Lines file, as for POST /v1/files.
     */
    file: string;
    /**
     * Format: uuid
     * @description Id of the API key whose requests these are; an API key may name only itself.
     */
    key?: string;
};
/** @description An evaluation to start, of a version, or of the version that an upload becomes. */
export type NewEvaluationRequest = {
    adapter?: string;
    /**
     * Format: uuid
     * @description Id of the API key with which the requests are counted; an API key can name only itself.
     */
    key?: string;
    set: string;
    /**
     * Format: uuid
     * @description Id of an upload to evaluate, instead of adapter and version.
     */
    upload?: string;
    version?: number;
};
/** @description The multipart form of a new set. */
export type NewEvaluationSetRequest = {
    /**
     * Format: binary
     * @description JSON lines of {"prompt" or "messages", "expected"}: all prompts, or all messages.
     */
    file: string;
    /** @description Maximum number of tokens of an answer; none for logprob. By default 64. */
    max_tokens?: number;
    /** @description exact: the answer is the expected text, white space around either ignored; contains: the answer contains it; logprob: the mean natural log-probability of its tokens after the prompt. A score is the mean over all items. */
    metric: EvaluationMetric;
    name: string;
};
/** @description The days of an export: `from` and `to`, or the last `days`. */
export type NewExportRequest = {
    days?: number;
    /** Format: date */
    from?: string;
    grain?: Grain;
    /** Format: date */
    to?: string;
};
export type NewExportScheduleRequest = {
    cadence: Cadence;
    /** @description By default day. */
    grain?: Grain;
};
export type NewImportRequest = {
    /** @description Name or digest of the base model that it was trained for. Needed only where several are served, the adapter is new, and its configuration names none of them. */
    base_model?: string;
    description?: string;
    /** @description Name of the adapter, which is created if there is none. */
    name: string;
    /** @description hub:org/name or hub:org/name/folder@revision, s3://bucket/folder with credentials that the tenant keeps for the bucket, or the https address of a .zip, .tar or .tar.gz. */
    source: string;
};
export type NewInvitationRequest = {
    /** Format: email */
    email: string;
    role: Role;
};
export type NewJoinTokenRequest = {
    /** @description Seconds for which the token can be used. By default 3600. */
    expires_s?: number;
    /** @description Name under which the machine joins; it replaces an existing host of that name. Without it the machine chooses a name, which must be new. */
    host?: string;
};
export type NewPasskeyRequest = {
    /** @description PublicKeyCredential.toJSON() of navigator.credentials.create. */
    credential: {
        [key: string]: unknown;
    };
    name: string;
};
/** @description A `prompt`, for completions, or `messages`, for chats, with which the requests begin that are to share it. */
export type NewPrefixRequest = {
    /** @description Cache salt of the requests that are to share the prefix; empty: they have none. */
    cache_salt?: string;
    /** @description Variables of the chat template in the requests that are to share the prefix. */
    chat_template_kwargs?: {
        [key: string]: unknown;
    };
    messages?: PrefixMessageRequest[];
    /** @description Name of an adapter, whose live version is used, or of a base model. */
    model: string;
    name: string;
    prompt?: string;
    /** @description Reasoning effort of the requests that are to share the prefix. */
    reasoning_effort?: ReasoningEffortEnum;
    /** @description Tools of the requests that are to share the prefix, as in a chat. */
    tools?: {
        [key: string]: unknown;
    }[];
};
export type NewPricesRequest = {
    /** @description Digest of the base model that gets its own list; null: the installation's list. */
    base_model_digest?: string | null;
    /** @description Millionths of the currency for a million cached prompt tokens in batches; null: as outside batches. */
    batch_cached_input_per_million?: number | null;
    /** @description Millionths of the currency for a million prompt tokens in batches; null: as outside batches. */
    batch_input_per_million?: number | null;
    /** @description Millionths of the currency for a million output tokens in batches; null: as outside batches. */
    batch_output_per_million?: number | null;
    /** @description Price of a million prompt tokens from the prefix cache, in millionths of the currency. */
    cached_input_per_million: number;
    /** @description ISO 4217 code of the currency, such as USD. */
    currency: string;
    /**
     * Format: date
     * @description First day of the prices, from midnight UTC.
     */
    effective_on: string;
    /** @description Price of a million prompt tokens, in millionths of the currency. */
    input_per_million: number;
    output_per_million: number;
    /** @description Millionths of the currency for 10^9 bytes of adapters a month; null: in a base model's list, which has none. */
    storage_per_gb_month?: number | null;
};
export type NewPromotionRuleRequest = {
    /**
     * Format: uuid
     * @description Id of the API key with which evaluations' requests are counted; an API key can name only itself.
     */
    key?: string;
    /**
     * Format: double
     * @description Lowest score with which a version may become live; null: any score.
     */
    minimum?: number | null;
    /** @description By default true. */
    not_worse_than_live?: boolean;
    set: string;
};
export type NewTenantRequest = {
    name: string;
    /**
     * Format: email
     * @description Address of the person who is invited as the first owner.
     */
    owner: string;
    /** @description Short name in addresses, which never changes. */
    slug: string;
};
/** @description The multipart form of a new upload. */
export type NewUploadRequest = {
    /** @description Name or digest of the base model that it was trained for. Needed only where several are served, the adapter is new, and its configuration names none of them. */
    base_model?: string;
    description?: string;
    /** @description adapter_config.json and adapter_model.safetensors, or one .zip or .tar.gz that holds them. */
    files: string[];
    /** @description Name of the adapter, which is created if there is none. */
    name: string;
    /** @description Output of `sha256sum` for the files: an upload with other content is refused. */
    sha256?: string;
};
/** @enum {unknown} */
export type NullEnum = null;
/** @description An engine host by its last heartbeat, with every tenant's adapters. */
export type OperatorHost = {
    /** @description Number of other hosts that read an adapter from this host now. */
    adapter_readers: number;
    adapters: OperatorResidentAdapter[];
    /** @description Number of the adapters on the host; `adapters` has at most 256 of them, the busiest first. */
    adapters_total: number;
    address: string;
    base_digest: string;
    boot_id: string;
    /**
     * Format: double
     * @description Seconds that the host's clock is ahead of the database's; negative: behind; null: the host does not answer, or was not measured yet.
     */
    clock_ahead_s?: number | null;
    device: string;
    /** @description Release of the host's engine and commit of the build; empty: not known. */
    engine_version?: string;
    /** @description Part of the host's status; null: the engine does not report it. */
    experts: ResidentExperts | null;
    /** @description Membership of a host that joined with a token; null: a host of the settings. */
    joined: JoinedHost | null;
    /** @description Why the engine before the running one ended; null: it ended normally, or the host is offline. */
    last_end?: LastEnd | null;
    /**
     * Format: date-time
     * @description Time of the last heartbeat; null: there was none yet.
     */
    last_seen: string | null;
    load_times?: LoadTime[];
    model: string;
    name: string;
    /** @description Number of versions that can be called on this host and on no other serving host. */
    only_here: number;
    /** @description Bytes of one page over all layers. */
    page_bytes: number;
    pool: Pool;
    /** @description Why the host gets neither adapters nor requests; null: it is not in quarantine. */
    quarantine: Quarantine | null;
    /** @description Progress of a requested restart; null: none is requested, or it is done. */
    restart?: RestartState | null;
    running: number;
    /** @description Service that operators want of the host; cordoned and drained hosts get no new adapters or requests. */
    service: HostService;
    /** @description Shares of the engine's service of the 100 tenants with the longest queues. */
    shares?: TenantShare[];
    state: HostState;
    /** Format: double */
    tokens_per_second: number;
    waiting: number;
    /** @description Location that the engine reports (`--zone`); empty: not known. */
    zone: string;
};
export type OperatorReport = {
    /**
     * Format: date-time
     * @description Time up to which all stored usage is in the sums; null: nothing has been summed yet.
     */
    as_of: string | null;
    by_base_model: BaseModelUsage[];
    by_day: DayUsage[];
    /** @description Tenants with most device time, at most a hundred. */
    by_tenant: TenantUsage[];
    /** @description ISO 4217 code of the currency; null: there are no prices, and every cost is 0. */
    currency: string | null;
    /** Format: date */
    first: string;
    /** Format: date */
    last: string;
    latency: Latency;
    /** @description Number of requests by outcome; filtered by base model, only those that reached an engine. */
    outcomes: OutcomeCounts;
    /** @description Number of tenants with requests, refused ones included. */
    tenants: number;
    top_adapters: TopAdapter[];
    totals: UsageTotals;
};
export type OperatorResidentAdapter = {
    bytes: number;
    /**
     * Format: double
     * @description Milliseconds that a request would wait for the adapter, without the queue, by the loads measured on the host; null: not known.
     */
    cold_start_ms?: number | null;
    digest: string;
    /** @description Units of the adapter's experts; null: it has none, is not on the device, or the host keeps all in its page pool. */
    experts: AdapterExperts | null;
    rank: number;
    /** @description Number of running requests that use the adapter. */
    running: number;
    tier: AdapterTier;
    /** @description Versions with this content; empty: the host has not dropped it yet. */
    used_by: AdapterReference[];
};
/** @enum {string} */
export type Outcome = "finished" | "aborted" | "failed" | "refused";
export type OutcomeCounts = {
    aborted: number;
    failed: number;
    finished: number;
    refused: number;
};
/** @description The number of requests by their outcome in an engine. */
export type Outcomes = {
    aborted: number;
    failed: number;
    finished: number;
    refused: number;
};
export type Overview = {
    adapters: AdapterCounts;
    first_steps: FirstSteps;
    hosts: Host[];
    recent_requests: RequestRecord[];
    requests_24h: number;
    tokens_24h: number;
};
export type OwnerInvitationRequest = {
    /** Format: email */
    email: string;
    role: Role;
};
/** @enum {string} */
export type PageKind = "free" | "kv" | "cached_prefix" | "adapter" | "reserved" | "state" | "others";
export type PageOwner = {
    /** @description Names of the versions whose content the pages hold or were computed with. */
    adapters: string[];
    /**
     * Format: double
     * @description Seconds since the arrival of the request or the last use of the adapter; null: neither applies.
     */
    age_s: number | null;
    /** @description Use of the pages; `others`: they belong to another tenant. */
    kind: PageKind;
    /** @description Whether the pages belong to a pinned adapter or a pinned prefix, which is not evicted. */
    pinned: boolean;
    /** @description Slug of the tenant that owns the pages, for operators only; null: no tenant, or not an operator. */
    tenant: string | null;
};
export type Passkey = {
    /** Format: date-time */
    created_at: string;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description Time at which the passkey was last used; null: never.
     */
    last_used_at: string | null;
    name: string;
};
/** @description A change of a base model: fields that are left out stay. */
export type PatchedBaseModelChangeRequest = {
    name?: string;
    /** @description Seconds without a request after which the base model needs no host, 60 or more; 0: it never sleeps. */
    sleeps_after_s?: number;
};
/** @description Changes of a key; a field that is left out keeps its value. */
export type PatchedChangeApiKeyRequest = {
    /**
     * Format: date-time
     * @description Time from which the key is refused; null: it does not expire.
     */
    expires_at?: string | null;
    name?: string;
    scopes?: string[];
};
export type PatchedNewRoleRequest = {
    role?: Role;
};
export type PatchedTenantNameRequest = {
    name?: string;
};
/** @description The percentiles of a latency in milliseconds; null if nothing was measured. */
export type Percentiles = {
    /**
     * Format: double
     * @description Median; null: nothing was measured.
     */
    p50_ms: number | null;
    /**
     * Format: double
     * @description 95th percentile; null: nothing was measured.
     */
    p95_ms: number | null;
    /**
     * Format: double
     * @description 99th percentile; null: nothing was measured.
     */
    p99_ms: number | null;
};
/** @description The pin of an adapter's live version in the device memory of its hosts, and its size. */
export type Pin = {
    /** @description Bytes of device memory that the live version takes on one host; null: no version is live. */
    bytes: number | null;
    /** @description Hosts on which the live version is ready. */
    hosts: HostPin[];
    /** @description Bytes of each host's device memory that the tenant may pin; null or 0: none. */
    limit_bytes: number | null;
    /**
     * Format: date-time
     * @description Time at which the adapter was pinned; null: it is not pinned.
     */
    pinned_at: string | null;
    /** @description Bytes of device memory that all the tenant's pins take on the host where they take most. */
    used_bytes: number;
};
export type PinnedAdapter = {
    /** @description Bytes of device memory that the adapter takes on one host, the largest where hosts differ; 0: no host has its live version. */
    bytes: number;
    name: string;
    /** Format: date-time */
    pinned_at: string;
};
export type Placement = {
    attempts: number;
    bytes_done: number;
    bytes_total: number;
    /** @description Number format in which the host serves the version, such as fp8 or bfloat16; empty until the host reports it. */
    dtype: string;
    /** @description Comparison of number formats on the host; null: none was made yet. */
    dtype_report: DtypeReport | null;
    /** @description Error of the last failed attempt; null: none failed, or a new attempt has begun. */
    error: Problem | null;
    host: string;
    phase: StagingPhase;
    /** Format: date-time */
    updated_at: string;
};
/** @description Numbers of pages of a host's pool by use; ``free + kv + state + cached_prefix + adapter + reserved == total``. */
export type Pool = {
    adapter: number;
    cached_prefix: number;
    free: number;
    kv: number;
    reserved: number;
    state: number;
    total: number;
};
export type PreemptionSpan = {
    /** @description Start of the pre-emption, in milliseconds since the request was submitted to an engine. */
    at_ms: number;
    /** @description Duration of the pre-emption in milliseconds, until the request ran again. */
    ms: number;
};
/** @description A pinned prefix, and what the hosts that answer for its model do with it. */
export type Prefix = {
    /** @description Bytes of device memory that the prefix takes on one host, the largest where hosts differ. */
    bytes: number;
    cache_salt: string;
    /** @description Hosts that serve the prefix's model; empty: the adapter has no live version, or no host has the model. */
    hosts: HostPrefix[];
    /** @description Name of the adapter or base model; empty: a base model that is no longer served. */
    model: string;
    name: string;
    /** Format: date-time */
    pinned_at: string;
    /** @description Number of tokens shared by all prompts that begin with the prefix; only full pages of them are kept. */
    tokens: number;
};
/** @description The pinned text, as it was sent. */
export type PrefixContent = {
    chat_template_kwargs?: {
        [key: string]: unknown;
    };
    messages?: PrefixMessage[];
    prompt?: string;
    reasoning_effort?: string;
    tools?: {
        [key: string]: unknown;
    }[];
};
export type PrefixMessage = {
    content: string;
    role: PrefixMessageRoleEnum;
};
export type PrefixMessageRequest = {
    content: string;
    role: PrefixMessageRoleEnum;
};
/** @enum {string} */
export type PrefixMessageRoleEnum = "system" | "developer" | "user" | "assistant";
/** @description A pinned prefix, and what the hosts that answer for its model do with it. */
export type PrefixText = {
    /** @description Bytes of device memory that the prefix takes on one host, the largest where hosts differ. */
    bytes: number;
    cache_salt: string;
    content: PrefixContent;
    /** @description Hosts that serve the prefix's model; empty: the adapter has no live version, or no host has the model. */
    hosts: HostPrefix[];
    /** @description Name of the adapter or base model; empty: a base model that is no longer served. */
    model: string;
    name: string;
    /** Format: date-time */
    pinned_at: string;
    /** @description Number of tokens shared by all prompts that begin with the prefix; only full pages of them are kept. */
    tokens: number;
};
/**
 * @description A version of one list. Of requests the base model's own list counts, if it has one on their day, or else the
 *     installation's.
 */
export type PriceVersion = {
    /** @description Current name of the base model of the list; null: the installation's list. */
    base_model?: string | null;
    /** @description Digest of the base model of the list; null: the installation's list. */
    base_model_digest?: string | null;
    /** @description Millionths of the currency for a million cached prompt tokens in batches; null: as outside batches. */
    batch_cached_input_per_million?: number | null;
    /** @description Millionths of the currency for a million prompt tokens in batches; null: as outside batches. */
    batch_input_per_million?: number | null;
    /** @description Millionths of the currency for a million output tokens in batches; null: as outside batches. */
    batch_output_per_million?: number | null;
    cached_input_per_million: number;
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that published the prices; null: the account no longer exists. */
    created_by?: string | null;
    currency: string;
    /**
     * Format: date
     * @description First day of the prices, from midnight UTC.
     */
    effective_on: string;
    /** @description True: the base model has no list of its own from `effective_on`; every amount is 0. */
    inherits: boolean;
    input_per_million: number;
    number: number;
    output_per_million: number;
    /** @description Millionths of the currency for 10^9 bytes of adapters a month; null: a base model's list. */
    readonly storage_per_gb_month: number | null;
};
/** @description A prompt, continued by the base model and with the version. Changes are of log-probabilities. */
export type ProbedPrompt = {
    adapter_tokens: string[];
    base_tokens: string[];
    /** @description Whether the model's numbers stayed finite with the version. */
    finite: boolean;
    /** Format: double */
    largest_change: number;
    /** Format: double */
    mean_change: number;
    prompt: string;
};
/** @description An error that is stored with a resource: why an upload was refused, why a staging failed. */
export type Problem = {
    code: string;
    fix: string;
    message: string;
};
export type ProfileRequest = {
    /** @description Name that other members see. */
    name: string;
};
/** @description The score that a version must reach before it becomes live, or a canary of it. */
export type PromotionRule = {
    /**
     * Format: uuid
     * @description API key with which the requests of these evaluations are counted.
     */
    key: string;
    /**
     * Format: double
     * @description Lowest score with which a version may become live; null: any score.
     */
    minimum: number | null;
    not_worse_than_live: boolean;
    /** @description Evaluation set with which new versions are evaluated automatically. */
    set: string;
};
/** @description The agreement on one prompt, with the tokens that the unquantised model chooses after the same text. */
export type PromptAgreement = {
    adapter: AgreementFigures;
    adapter_tokens: string[];
    base: AgreementFigures;
    base_tokens: string[];
};
export type Quarantine = {
    code: QuarantineCode;
    fix: string;
    message: string;
};
/** @enum {string} */
export type QuarantineCode = "other_base_model" | "other_tokenizer" | "base_model_undecided" | "unsupported_engine" | "revoked";
/** @enum {string} */
export type ReasoningEffortEnum = "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";
/** @description The usage of the last `days` (UTC). */
export type RecentUsage = {
    days: number;
    failed: number;
    refused: number;
    /** @description Number of requests, however they ended, with those that reached no engine. */
    requests: number;
    tokens: number;
};
/** @description The recording setting: whether prompts and answers are stored with the requests, and for how long. */
export type Recording = {
    /** @description Days after which each text is deleted. */
    days: number;
    enabled: boolean;
};
/** @description The recording setting: whether prompts and answers are stored with the requests, and for how long. */
export type RecordingRequest = {
    /** @description Days after which each text is deleted. */
    days: number;
    enabled: boolean;
};
export type RecoveryCodes = {
    /** @description Recovery codes, shown only once; empty unless this was the first second factor. */
    recovery_codes: string[];
};
/** @description Refusals of one kind within one minute. */
export type Refusal = {
    code: string;
    count: number;
    endpoint: ApiEndpoint;
    id: number;
    /** @description Name of the API key; null: a member in the console. */
    key?: string | null;
    /** Format: date-time */
    last_at: string;
    /** @description Limit that caused the refusals; empty: the cause was not a limit. */
    limit: string;
    /** Format: date-time */
    minute: string;
    /** @description Model in the last refused request; empty: none. */
    model: string;
    /** @description Parameter at fault in the last refused request; empty: none. */
    param: string;
    /** @description HTTP status code of the response. */
    status: number;
};
export type RefusalPage = {
    /** @description `cursor` of the next page; null at the end. */
    next_cursor: string | null;
    results: Refusal[];
};
export type RefusalsByCode = {
    by_step: number[];
    /** @description Error code; `others`: all beyond the 20 most frequent ones. */
    code: string;
    count: number;
    /** @description HTTP status code of the response; 0: the row `others`. */
    status: number;
};
/** @description Requests that reached no engine, over time. They are a few seconds late. */
export type RefusalSeries = {
    by_code: RefusalsByCode[];
    /** @description Number of the refused requests with a 5xx status, which are the platform's fault. */
    failed: number;
    /** Format: date-time */
    since: string;
    /** @description Start of each step. */
    starts: string[];
    step_s: number;
    total: number;
    /**
     * Format: date-time
     * @description End of the window, exclusive; the last step may not be over yet.
     */
    until: string;
};
export type RequestCounts = {
    completed: number;
    failed: number;
    /** @description Number of requests in the batch; 0 until every line has been checked. */
    total: number;
};
export type RequestPage = {
    /**
     * Format: date
     * @description Day before whose month requests are archived, on the last page; reports and exports still count them. Null if none are.
     */
    archived_before?: string | null;
    /** @description `cursor` of the next page; null at the end. */
    next_cursor: string | null;
    results: RequestRecord[];
};
/** @description A request of the ledger. Neither prompt nor output is kept. */
export type RequestRecord = {
    /** @description Number of completion tokens that were accepted draft tokens; each saved a decoding step. */
    accepted_tokens: number;
    /** @description Name of the adapter; null: the base model without an adapter. */
    adapter?: string | null;
    adapter_load_ms: number;
    /** @description Tier from which the adapter was loaded while the request waited: "disk" or "host"; empty: no wait. */
    adapter_loaded_from: string;
    /** @description Milliseconds to authenticate the request and to find the adapter and its hosts. */
    auth_ms: number;
    /** @description Current name of the base model that ran the request; null: not recorded. */
    readonly base_model: string | null;
    /** @description True: the request is a line of a batch. */
    batch: boolean;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency; null: the request had no price. */
    cost_micros: number | null;
    /** Format: date-time */
    created_at: string;
    /** @description ISO 4217 code of the currency; null: the request had no price. */
    currency: string | null;
    decode_ms: number;
    /** @description Number of draft tokens that speculative decoding computed; they are never billed. */
    drafted_tokens: number;
    endpoint: ApiEndpoint;
    error_code: string;
    /** @description Finish reasons of the choices, by commas: "stop", "length", "tool_calls"; empty: unknown. */
    finish_reason: string;
    first_token_ms: number;
    host: string;
    id: string;
    /** @description First 16 fields of the request that were ignored, as in the response header X-Lorikeet-Ignored. */
    readonly ignored: string[];
    /** @description Name of the API key; null: a member in the console. */
    key?: string | null;
    /** @description Model name as the client wrote it. */
    model: string;
    outcome: Outcome;
    /** @description Milliseconds outside the batch after pre-emptions, summed over all choices. */
    preempted_ms: number;
    /** @description First 16 pre-emptions of the request. */
    readonly preemption_spans: PreemptionSpan[];
    /** @description Number of times that the request was pre-empted. */
    preemptions: number;
    prefill_ms: number;
    prompt_tokens: number;
    queue_ms: number;
    /** @description Milliseconds to check limits and budgets. */
    quota_ms: number;
    /** @description Paths of the first 8 keywords of the request's schema that the output violates. */
    readonly schema_violations: string[];
    streamed: boolean;
    /** @description Version number of the adapter; null: the base model without an adapter. */
    version?: number | null;
};
export type RequirementRequest = {
    /** @description Members without a second factor can do nothing but set one up. API keys are not affected. */
    second_factor_required: boolean;
};
export type ResetPasswordRequest = {
    password: string;
    token: string;
};
/** @description An adapter of the tenant on a host. */
export type ResidentAdapter = {
    bytes: number;
    /**
     * Format: double
     * @description Milliseconds that a request would wait for the adapter, without the queue, by the loads measured on the host; null: not known.
     */
    cold_start_ms?: number | null;
    digest: string;
    /** @description Units of the adapter's experts; null: it has none, is not on the device, or the host keeps all in its page pool. */
    experts: AdapterExperts | null;
    /** @description Name of the newest version with this content, the first of `names`. */
    name: string;
    /** @description Names of all the tenant's versions with this content, the newest first. */
    names?: string[];
    rank: number;
    /** @description Number of running requests that use the adapter. */
    running: number;
    tier: AdapterTier;
};
export type ResidentExperts = {
    demotions: number;
    host_pairs: number;
    pairs: number;
    promotions: number;
    recent_host_pairs: number;
    recent_pairs: number;
    resident: number;
    setting: string;
    total: number;
};
export type Restart = {
    /**
     * @description Seconds that running requests have to end before the restart; a later request replaces the value.
     * @default 300
     */
    wait_s: number;
};
/** @enum {string} */
export type RestartPhase = "asked" | "ending" | "starting";
export type RestartRequest = {
    /** @description Seconds that running requests have to end before the restart; a later request replaces the value. By default 300. */
    wait_s?: number;
};
/** @description A restart that an operator requested and that is not done. */
export type RestartState = {
    /** Format: date-time */
    asked_at: string;
    /** @description `asked`: the engine has not received the request. `ending`: it waits for running requests. `starting`: it has ended. */
    phase: RestartPhase;
    wait_s: number;
};
/** @enum {string} */
export type Role = "owner" | "admin" | "developer" | "viewer";
export type RotateApiKeyRequest = {
    /** @description Seconds for which the old secret is still accepted. By default 86400. */
    grace_s?: number;
};
/** @description A version's score on an evaluation set, with those of the base model and the live version of that time. */
export type Score = {
    /** Format: date-time */
    at: string;
    /** Format: double */
    base: number;
    /** Format: uuid */
    evaluation: string;
    items: number;
    /** @description Score of the live version; null if none was live, or this one. */
    live: LiveScore | null;
    metric: EvaluationMetric;
    /**
     * Format: double
     * @description Mean score of the version over all items; higher is better.
     */
    score: number;
    set: string;
    /** @description Items that the version answered worst, five at most. */
    worst: AnsweredItem[];
};
/** @description A proof of the second factor: one of the two. */
export type SecondFactorRequest = {
    /** @description A code of the authenticator app, or a recovery code. */
    code?: string;
    /** @description PublicKeyCredential.toJSON() of navigator.credentials.get. */
    credential?: {
        [key: string]: unknown;
    };
};
/** @description The second factors of the calling person. */
export type SecondFactors = {
    /** @description Authenticator app of the person; null: none is set up. */
    app: App | null;
    /** @description Whether changes are accepted without POST /api/session/confirmation first. */
    confirmed: boolean;
    passkeys: Passkey[];
    /** @description False where browsers offer no passkeys: without a host name or HTTPS. */
    passkeys_available: boolean;
    /** @description Number of unused recovery codes. */
    recovery_codes_left: number;
    /** @description Names of the person's tenants that require a second factor. */
    required_by: string[];
};
export type Security = {
    /** @description Number of members without a second factor. */
    members_without: number;
    /** @description Members without a second factor can do nothing but set one up. API keys are not affected. */
    second_factor_required: boolean;
};
export type SeriesPart = {
    /** @description Number of completion tokens that were accepted draft tokens; each saved a decoding step. */
    accepted_tokens: number;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    /** @description Device time in microseconds by step, of the ten rows with most device time; empty for other rows and for adapters. */
    device_us_by_step: number[];
    /** @description Number of draft tokens that speculative decoding computed; they are never billed. */
    drafted_tokens: number;
    /** @description Latencies of answered requests, without batches. */
    latency: Latency;
    /**
     * Format: double
     * @description Mean time for which a request waited for its adapter, in milliseconds; null: there were no requests.
     */
    mean_adapter_load_ms: number | null;
    /**
     * Format: double
     * @description Mean time in the engines' queues in milliseconds; null: there were no requests.
     */
    mean_queue_ms: number | null;
    /** @description Name of the row; null: the base model itself, members in the console, or not recorded. */
    name?: string | null;
    outcomes: Outcomes;
    /** @description Prefix of the API key; null or absent: the row is not of an API key. */
    prefix?: string | null;
    prompt_tokens: number;
    requests: number;
    /** @description Number of requests by step, of the ten rows with most device time; empty for other rows and for adapters. */
    requests_by_step: number[];
    /** @description Short name of the tenant; null or absent: the row is not of a tenant. */
    tenant?: string | null;
    /** @description Number of the version; null: the base model itself; absent: the row is not of a version. */
    version?: number | null;
    /**
     * Format: double
     * @description Current weight of the tenant, its relative share of full hosts; absent: not of a tenant.
     */
    weight?: number;
};
export type SeriesPoint = {
    /** @description Number of completion tokens that were accepted draft tokens; each saved a decoding step. */
    accepted_tokens: number;
    /**
     * Format: date-time
     * @description Start of the step; the first and the last step count only their part inside the window.
     */
    at: string;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    /** @description Number of draft tokens that speculative decoding computed; they are never billed. */
    drafted_tokens: number;
    /** @description Latencies of answered requests, without batches. */
    latency: Latency;
    /**
     * Format: double
     * @description Mean time for which a request waited for its adapter, in milliseconds; null: there were no requests.
     */
    mean_adapter_load_ms: number | null;
    /**
     * Format: double
     * @description Mean time in the engines' queues in milliseconds; null: there were no requests.
     */
    mean_queue_ms: number | null;
    outcomes: Outcomes;
    prompt_tokens: number;
    requests: number;
};
/** @description A report over time. Minutes are kept for two days, hours for ninety. Each part lists at most a hundred rows. */
export type SeriesReport = {
    /**
     * Format: date-time
     * @description Time up to which all stored usage is in the sums; null: nothing has been summed yet.
     */
    as_of: string | null;
    /** @description Usage by adapter in a tenant's report; for latencies, filter by `adapter`. */
    by_adapter: SeriesPart[];
    /** @description Usage by base model; null name: none was recorded. Empty in an adapter's report. */
    by_base_model: SeriesPart[];
    /** @description Usage by host in a report of one tenant or of all tenants. */
    by_host: SeriesPart[];
    /** @description Usage by API key in a tenant's report; without latencies. */
    by_key: SeriesPart[];
    /** @description Usage by tenant in an operator's report of all tenants. */
    by_tenant: SeriesPart[];
    /** @description Usage by version in an adapter's report. */
    by_version: SeriesPart[];
    /** @description ISO 4217 code of the currency; null: there are no prices. */
    currency: string | null;
    points: SeriesPoint[];
    /** Format: date-time */
    since: string;
    step_s: number;
    totals: SeriesTotals;
    /**
     * Format: date-time
     * @description End of the window, exclusive; the last step may not be over yet.
     */
    until: string;
};
export type SeriesTotals = {
    /** @description Number of completion tokens that were accepted draft tokens; each saved a decoding step. */
    accepted_tokens: number;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    /** @description Number of draft tokens that speculative decoding computed; they are never billed. */
    drafted_tokens: number;
    /** @description Latencies of answered requests, without batches. */
    latency: Latency;
    /**
     * Format: double
     * @description Mean time for which a request waited for its adapter, in milliseconds; null: there were no requests.
     */
    mean_adapter_load_ms: number | null;
    /**
     * Format: double
     * @description Mean time in the engines' queues in milliseconds; null: there were no requests.
     */
    mean_queue_ms: number | null;
    outcomes: Outcomes;
    prompt_tokens: number;
    requests: number;
};
export type ServerVersion = {
    /** @description The release and the commit, such as 0.1.0+gf66acf9d. */
    version: string;
};
/** @description The gap in service between two tenants that waited and could have run: the widest of all pairs. */
export type ServiceGap = {
    /** @description Slug of the tenant that received more service. */
    ahead: string;
    behind: string;
    /**
     * Format: double
     * @description Upper bound of the gap under the fair order, over any time in which both tenants wait.
     */
    bound: number;
    /**
     * Format: double
     * @description Service that `ahead` received more than `behind`, in priced tokens per weight.
     */
    gap: number;
    /**
     * Format: double
     * @description Gap divided by its bound.
     */
    share: number;
};
export type ServiceGapPoint = {
    /**
     * Format: date-time
     * @description Start of the step.
     */
    at: string;
    /** @description Gap nearest to its bound among the step's heartbeats; null: no two tenants waited. */
    widest: ServiceGap | null;
};
export type Session = {
    authenticated: boolean;
    /** @description Token to send as X-CSRFToken with every POST, PUT, PATCH and DELETE. */
    csrf_token: string;
    /** @description Whether signing in with a password is possible here. */
    password_login: boolean;
    /** @description Name of the provider to sign in with; null: none is set up. */
    provider: string | null;
    /** @description Address of the person whose sign-in waits for its second factor; null: no sign-in waits. */
    second_factor_for: string | null;
    /** @description Whether a mail server is set up, so that links are mailed. */
    sends_mail: boolean;
    /** @description Reason why the last sign-in by provider failed, returned once; null: it did not fail. */
    sign_in_error: SignInError | null;
    tenants: SessionTenant[];
    /** @description Person who is signed in; null: nobody is. */
    user: SessionUser | null;
};
export type SessionTenant = {
    capabilities: Capability[];
    name: string;
    role: Role;
    /** @description Whether members need a second factor; without one they have no capabilities here. */
    second_factor_required: boolean;
    slug: string;
    /**
     * Format: date-time
     * @description Time since which the tenant's keys are refused and its members can only read; null: not suspended.
     */
    suspended_at: string | null;
    /** @description Reason of the suspension, in the operator's words; empty: the tenant is not suspended. */
    suspended_for: string;
};
export type SessionUser = {
    /** Format: email */
    email: string;
    /** @description Whether the person has a password; others sign in by provider. */
    has_password: boolean;
    /** Format: uuid */
    id: string;
    is_operator: boolean;
    name: string;
    /** @description Whether the person signs in with a second factor. */
    second_factor: boolean;
};
/** @description A tenant's share of an engine, as the engine last reported it. */
export type Share = {
    /**
     * Format: double
     * @description Share of service, from 0 to 1, that the tenant's weight gives it among the tenants in the engine now.
     */
    owed: number;
    /** @description Why the tenant's next request waits: `adapter_loading`, `no_room`, `background`, `tenant_cap`, `own_queue`, `own_quota`, `batch_full`, `queue`; empty: none waits. */
    reason: string;
    /**
     * Format: double
     * @description Share of service, from 0 to 1, that the tenant received in the last 10 to 20 seconds.
     */
    received: number;
    running: number;
    waiting: number;
    /** Format: double */
    weight: number;
};
export type SignInError = {
    code: string;
    fix: string;
    message: string;
};
export type SloReport = {
    /**
     * Format: date-time
     * @description Time up to which all stored usage is in the sums; null: nothing has been summed yet.
     */
    as_of: string | null;
    days: number;
    /** @description Number of requests that failed through no fault of the caller. */
    failed: number;
    first_token: Attainment;
    /** @description Objective for the time to the first token, in milliseconds; null: none. */
    first_token_ms?: number | null;
    inter_token: Attainment;
    /** @description Objective for the mean time between the tokens of a request, in milliseconds; null: none. */
    inter_token_ms?: number | null;
    /**
     * Format: double
     * @description Mean time in the engines' queues in milliseconds; null: there were no requests.
     */
    mean_queue_ms: number | null;
    requests: number;
    /**
     * Format: double
     * @description Share of requests that should meet each objective.
     * @default 0.99
     */
    target: number;
    /**
     * Format: double
     * @description Weight of the tenant: its share of full hosts, relative to other tenants' weights.
     */
    weight: number;
};
export type SocketTicket = {
    /** @description Seconds until the ticket expires. */
    expires_in: number;
    /** @description Ticket for one connection. */
    ticket: string;
};
export type StagingPage = {
    /** @description Number of placements on active hosts in each phase, regardless of the filters. */
    phases: {
        [key: string]: number;
    };
    results: StagingRow[];
    total: number;
};
/** @enum {string} */
export type StagingPhase = "queued" | "downloading" | "verifying" | "loading" | "ready" | "failed";
export type StagingRow = {
    adapter: string;
    /** @description Number of staging attempts since the placement was last queued. */
    attempts: number;
    bytes_done: number;
    /** @description Current rate of the transfer in bytes per second; 0: no bytes are moving. */
    bytes_per_second: number;
    bytes_total: number;
    /** @description Error of the last failed attempt; null: none failed, or a new attempt has begun. */
    error: Problem | null;
    /** @description Number of stagings in a row that failed after their last attempt. */
    failures: number;
    host: string;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description Time before which staging is not tried again after a failure; null: no wait.
     */
    next_attempt_at: string | null;
    phase: StagingPhase;
    /**
     * Format: double
     * @description Seconds until all bytes are transferred, at the current rate; null: no bytes are moving.
     */
    remaining_s: number | null;
    tenant: string;
    /** Format: date-time */
    updated_at: string;
    version: number;
    /** @description Why the staging makes no progress now; null: a worker stages it, or it is ready. */
    waits_for: (StagingWait | NullEnum) | null;
};
/** @enum {string} */
export type StagingWait = "slot" | "host_offline" | "host_cordoned" | "retry";
/** @description A statement of a month. Amounts are millionths of the currency. */
export type Statement = {
    /**
     * Format: date-time
     * @description Time up to which all stored usage is in the sums; null: nothing has been summed yet.
     */
    as_of: string | null;
    /** @description True: the month is over, and all its usage is in the sums. */
    complete: boolean;
    /** @description ISO 4217 code of the currency; null: there were no prices. */
    currency: string | null;
    lines: StatementLine[];
    month: string;
    total_micros: number;
};
export type StatementLine = {
    amount_micros: number;
    /** @description Current name of the base model whose own prices apply; null: the installation's prices. */
    base_model: string | null;
    /** Format: date */
    first: string;
    kind: StatementLineKind;
    /** Format: date */
    last: string;
    price_version: number;
    /** @description Number of tokens; for storage, bytes x hours. */
    quantity: number;
    /** @description Millionths of the currency for a million tokens; for storage, for 10^9 bytes a month. */
    unit_price_micros: number;
};
/** @enum {string} */
export type StatementLineKind = "input" | "cached_input" | "output" | "batch_input" | "batch_cached_input" | "batch_output" | "storage";
/** @description A tenant's storage. Content shared by several versions counts once, but for each adapter in the list. */
export type Storage = {
    /** @description Number of adapters with versions in use. */
    adapter_count: number;
    /** @description Adapters that take the most bytes. */
    adapters: AdapterStorage[];
    /** @description Bytes of versions that are archived and can be restored. */
    archived_bytes: number;
    /** @description Bytes of versions in use, which count against the limit. */
    bytes: number;
    /** @description Maximum of `bytes`; null: there is no limit. */
    limit_bytes: number | null;
};
export type StoredFile = {
    bytes: number;
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description Time at which the file is deleted.
     */
    expires_at: string;
    /** @description Id of the file in /v1/files. */
    id: string;
    name: string;
    purpose: FilePurpose;
};
export type SuspensionRequest = {
    /** @description Reason that members and callers of the tenant see. */
    reason: string;
};
export type Tenant = {
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description Time of the deletion; null: the tenant is not deleted.
     */
    deleted_at: string | null;
    name: string;
    slug: string;
    state: TenantState;
    /**
     * Format: date-time
     * @description Time since which the tenant's keys are refused and its members can only read; null: not suspended.
     */
    suspended_at: string | null;
    suspended_for: string;
    /** Format: double */
    weight: number;
};
export type TenantAdapter = {
    bytes: number;
    /** Format: date-time */
    created_at: string;
    name: string;
    /** @description LoRA rank of the newest version; null: the adapter has none. */
    rank: number | null;
    /** @description State of the newest version; null: the adapter has none. */
    state: (VersionState | NullEnum) | null;
    /** @description Number of the newest version; null: the adapter has none. */
    version: number | null;
};
export type TenantAdapterPage = {
    results: TenantAdapter[];
    total: number;
};
export type TenantDetail = {
    /** @description Number of adapters that are not archived. */
    adapters: number;
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description Time of the deletion; null: the tenant is not deleted.
     */
    deleted_at: string | null;
    /** @description Number of open invitations. */
    invitation_count: number;
    /** @description Open invitations, newest first. */
    invitations: Invitation[];
    /** @description Number of API keys that are not revoked. */
    keys: number;
    members: number;
    name: string;
    objectives: LatencyObjectives;
    slug: string;
    state: TenantState;
    /**
     * Format: date-time
     * @description Time since which the tenant's keys are refused and its members can only read; null: not suspended.
     */
    suspended_at: string | null;
    suspended_for: string;
    usage: RecentUsage;
    /** @description Number of versions in each state. */
    versions: {
        [key: string]: number;
    };
    /** Format: double */
    weight: number;
};
/** @description The limits of one key. The tenant's limits apply as well. */
export type TenantLimits = {
    /**
     * Format: int64
     * @description Maximum number of adapters that are not archived. Null = no limit.
     */
    adapters?: number | null;
    /**
     * Format: int64
     * @description Maximum number of choices that run at once: n for each prompt of a request. Null = no limit.
     */
    concurrency?: number | null;
    /**
     * Format: int64
     * @description Maximum number of output tokens for each choice of a request. Null = no limit.
     */
    max_output_tokens?: number | null;
    /**
     * Format: int64
     * @description Maximum rank of any module of an adapter. Null = no limit.
     */
    max_rank?: number | null;
    /**
     * Format: int64
     * @description Maximum bytes of adapters and prefixes pinned in each host's device memory. Null or 0 = none.
     */
    pinned_bytes?: number | null;
    /**
     * Format: int64
     * @description Maximum number of requests within any 60 seconds. Null = no limit.
     */
    requests_per_minute?: number | null;
    /**
     * Format: int64
     * @description Maximum bytes of adapter versions that are not archived; shared content counts once. Null = no limit.
     */
    storage_bytes?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens in a UTC day. Null = no limit.
     */
    tokens_per_day?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens within any 60 seconds. Null = no limit.
     */
    tokens_per_minute?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens in a UTC month. Null = no limit.
     */
    tokens_per_month?: number | null;
};
/** @description The limits of one key. The tenant's limits apply as well. */
export type TenantLimitsRequest = {
    /**
     * Format: int64
     * @description Maximum number of adapters that are not archived. Null = no limit.
     */
    adapters?: number | null;
    /**
     * Format: int64
     * @description Maximum number of choices that run at once: n for each prompt of a request. Null = no limit.
     */
    concurrency?: number | null;
    /**
     * Format: int64
     * @description Maximum number of output tokens for each choice of a request. Null = no limit.
     */
    max_output_tokens?: number | null;
    /**
     * Format: int64
     * @description Maximum rank of any module of an adapter. Null = no limit.
     */
    max_rank?: number | null;
    /**
     * Format: int64
     * @description Maximum bytes of adapters and prefixes pinned in each host's device memory. Null or 0 = none.
     */
    pinned_bytes?: number | null;
    /**
     * Format: int64
     * @description Maximum number of requests within any 60 seconds. Null = no limit.
     */
    requests_per_minute?: number | null;
    /**
     * Format: int64
     * @description Maximum bytes of adapter versions that are not archived; shared content counts once. Null = no limit.
     */
    storage_bytes?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens in a UTC day. Null = no limit.
     */
    tokens_per_day?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens within any 60 seconds. Null = no limit.
     */
    tokens_per_minute?: number | null;
    /**
     * Format: int64
     * @description Maximum number of prompt and output tokens in a UTC month. Null = no limit.
     */
    tokens_per_month?: number | null;
};
/** @description The current usage. Null means not counted: nothing limits it, or the counters cannot be reached. */
export type TenantLimitUsage = {
    adapters: number;
    /** @description Choices that run now; null: not counted. */
    concurrency: number | null;
    /** @description Requests in the last 60 seconds; null: not counted. */
    requests_per_minute: number | null;
    storage_bytes: number;
    tokens_per_day: number;
    /** @description Tokens in the last 60 seconds; running requests count with all they may use; null: not counted. */
    tokens_per_minute: number | null;
    tokens_per_month: number;
};
export type TenantMember = {
    /** @description False for an account made from an invitation, until its holder used a reset link or the provider. */
    address_proven: boolean;
    /** Format: email */
    email: string;
    /** Format: uuid */
    id: string;
    identities: LinkedIdentity[];
    /** Format: date-time */
    joined_at: string;
    name: string;
    role: Role;
    /** @description Whether the person signs in with a second factor. */
    second_factor: boolean;
};
export type TenantMemberPage = {
    results: TenantMember[];
    total: number;
};
export type TenantPage = {
    results: TenantRow[];
    total: number;
};
/** @description The adapters and prefixes that a tenant keeps in device memory. */
export type TenantPins = {
    adapters: PinnedAdapter[];
    /** @description Bytes of each host's device memory that the tenant may pin; null or 0: none. */
    limit_bytes: number | null;
    prefixes: Prefix[];
    /** @description Bytes of device memory that the tenant's pins take on the host where they take most. */
    used_bytes: number;
};
export type TenantRow = {
    /** @description Number of adapters that are not archived. */
    adapters: number;
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description Time of the deletion; null: the tenant is not deleted.
     */
    deleted_at: string | null;
    /** @description Number of API keys that are not revoked. */
    keys: number;
    members: number;
    name: string;
    slug: string;
    state: TenantState;
    /**
     * Format: date-time
     * @description Time since which the tenant's keys are refused and its members can only read; null: not suspended.
     */
    suspended_at: string | null;
    suspended_for: string;
    usage: RecentUsage;
    /** Format: double */
    weight: number;
};
/** @description A tenant's share of an engine, as the engine last reported it. */
export type TenantShare = {
    /**
     * Format: double
     * @description Priced tokens per weight that the tenant has received beyond the tenant with the least on this host.
     */
    ahead: number;
    name: string;
    /**
     * Format: double
     * @description Share of service, from 0 to 1, that the tenant's weight gives it among the tenants in the engine now.
     */
    owed: number;
    /** @description Why the tenant's next request waits: `adapter_loading`, `no_room`, `background`, `tenant_cap`, `own_queue`, `own_quota`, `batch_full`, `queue`; empty: none waits. */
    reason: string;
    /**
     * Format: double
     * @description Share of service, from 0 to 1, that the tenant received in the last 10 to 20 seconds.
     */
    received: number;
    running: number;
    tenant: string;
    waiting: number;
    /** Format: double */
    weight: number;
};
/** @enum {string} */
export type TenantState = "active" | "suspended" | "deleted";
export type TenantUsage = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /**
     * Format: double
     * @description Tenant's share of the device time of all tenants in the report, 0 to 1.
     */
    device_share: number;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    failed: number;
    latency: Latency;
    name: string;
    prompt_tokens: number;
    /** @description Number of requests that were refused by an engine or before they reached one. */
    refused: number;
    requests: number;
    tenant: string;
};
export type TenantUsageAgainstLimits = {
    limits: TenantLimits;
    used: TenantLimitUsage;
};
export type TenantWeight = {
    /** Format: double */
    weight: number;
};
export type TenantWeightRequest = {
    /** Format: double */
    weight: number;
};
export type TopAdapter = {
    /** @description Name of the adapter; null: the base model without an adapter. */
    adapter: string | null;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** Format: double */
    device_share: number;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    prompt_tokens: number;
    requests: number;
    tenant: string;
};
export type Transcript = {
    /** @description Text of each choice. */
    answers: string[];
    /** @description Whether the text was cut because of its length. */
    cut: boolean;
    prompt: TranscriptMessage[];
    /** @description Parameters of the request: sampling, `response_format`, `tools`. Null if they were too long to store, or the request is older than this field. */
    settings: {
        [key: string]: unknown;
    } | null;
};
export type TranscriptMessage = {
    content: string;
    /** @description The role in the request; "text" or "token_ids" for a prompt without roles. */
    role: string;
};
export type Upload = {
    adapter: string;
    bytes: number;
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that began the upload; null: an API key did, or the account no longer exists. */
    created_by?: string | null;
    description: string;
    /** @description Return the bytes fetched so far of an import in progress; null for every other upload. */
    readonly fetched_bytes: number | null;
    files: UploadedFile[];
    /** Format: uuid */
    id: string;
    /** @description Source of an import; null: the client sent the files. */
    imported_from: UploadSource | null;
    /** @description Reason why the upload waits, was refused or cancelled, or made no new version; null: none of these. */
    reason: Problem | null;
    /** @description Report of the validation; null: the files were not validated yet, or never. */
    report: ValidationReport | null;
    reused_version: boolean;
    state: UploadState;
    /** Format: date-time */
    updated_at: string;
    /** @description Number of the version with this content; null: the upload is not accepted. */
    version?: number | null;
};
export type UploadedFile = {
    bytes: number;
    name: string;
    /** @description SHA-256 that the client announced, in hex; null: it announced none. */
    sha256?: string | null;
};
/** @description The source of an import; for a URL without its query, and never with a token. */
export type UploadSource = {
    /** @description Commit to which the revision pointed when the import began; null: not known yet, or not on the Hub. */
    commit?: string | null;
    name: string;
    /** @description Branch, tag or commit of a repository of the Hub; null: the source is not on the Hub. */
    revision: string | null;
};
/** @enum {string} */
export type UploadState = "arriving" | "received" | "validating" | "refused" | "accepted" | "cancelled";
export type UsageAgainstLimits = {
    counters_reachable: boolean;
    /** @description API keys that are neither revoked nor expired. */
    keys: KeyUsageAgainstLimits[];
    tenant: TenantUsageAgainstLimits;
};
export type UsagePart = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    /** @description Name of the adapter or API key; null: the base model itself, or members in the console. */
    name: string | null;
    /** @description Prefix of the API key; null or absent: the row is not of an API key. */
    prefix?: string | null;
    prompt_tokens: number;
    requests: number;
};
export type UsageReport = {
    /**
     * Format: date-time
     * @description Time up to which all stored usage is in the sums; null: nothing has been summed yet.
     */
    as_of: string | null;
    by_adapter: AdapterUsage[];
    by_base_model: BaseModelUsage[];
    by_day: DayUsage[];
    by_key: KeyUsage[];
    /** @description ISO 4217 code of the currency; null: there are no prices. */
    currency: string | null;
    days: number;
    latency: Latency;
    totals: UsageTotals;
};
export type UsageTotals = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Cost in millionths of the currency of the requests that had a price, without storage; null: none of the requests had one. */
    cost_micros: number | null;
    /** @description Device time in microseconds; requests in a batch share it in proportion to their tokens. */
    device_us: number;
    prompt_tokens: number;
    requests: number;
};
export type ValidationCheck = {
    detail: string;
    name: string;
    ok: boolean;
};
/** @description An error that is stored with a resource: why an upload was refused, why a staging failed. */
export type ValidationProblem = {
    code: string;
    fix: string;
    message: string;
    /** @description Name of the tensor at fault in the file; null: the problem is not that of a tensor. */
    tensor: string | null;
};
/** @description The result of a validation. `problems` is capped; `problem_count` is not. */
export type ValidationReport = {
    checks: ValidationCheck[];
    /** @description Contents of the files; null: there are problems. */
    manifest: AdapterManifest | null;
    notes: string[];
    ok: boolean;
    problem_count: number;
    problems: ValidationProblem[];
};
/** @enum {string} */
export type VerdictEnum = "acts" | "changes_nothing" | "overflows";
export type Version = {
    adapter: string;
    /** @description Number format on hosts with adapters in FP8: auto (FP8 where it agrees), bf16 (never FP8) or fp8 (in any case). */
    adapter_dtype: AdapterDtypeEnum;
    /** @description Agreement with the unquantised base model; null until a host has measured it, and where the base model is not quantised. */
    agreement: (AgreementOutcome | NullEnum) | null;
    readonly aliases: string[];
    /** @description Whether a person has to confirm the base model before the version can become live. */
    asks_for_base: boolean;
    /** @description Whether a person has to confirm the version before it can become live: it changes nothing, overflows, or differs on the quantised base model. */
    asks_for_effect: boolean;
    base_model: string;
    bytes: number;
    /** @description Chat template of the version; null: the base model's. */
    chat_template: ChatTemplate | null;
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that uploaded the version; null: an API key did, or the account no longer exists. */
    created_by?: string | null;
    digest: string;
    dtype: string;
    /** @description Effect that a host measured; null: none has yet. */
    effect: VersionEffect | null;
    /** @description Reason why the version failed; null: it has not failed, or is staged again. */
    error: Problem | null;
    /** @description The last score of each evaluation set. */
    evaluations: Score[];
    /**
     * Format: date-time
     * @description Time until which an archived version can be restored; null: it is not archived.
     */
    readonly kept_until: string | null;
    /** @description Base model that the adapter's configuration names, if it is not the one served. */
    named_base: string;
    num_parameters: number;
    number: number;
    /**
     * Format: date-time
     * @description Time at which a request first ended with adapter_overflow: the weights are too large. Null: never.
     */
    overflowed_at: string | null;
    placements: Placement[];
    rank: number;
    report: ValidationReport;
    state: VersionState;
    targets: string[];
    /** @description Whether the version changes answers; null until a host has measured it. */
    verdict: (VerdictEnum | NullEnum) | null;
};
/** @description The effect of a version on a few prompts when the first host tried it, before it was ready. */
export type VersionEffect = {
    /** @description Agreement with the unquantised base model; null where the host's base model is not quantised. */
    agreement: Agreement | null;
    /** Format: date-time */
    at: string;
    /** @description Number of tokens that the base model would not choose. */
    differing_tokens: number;
    elapsed_ms: number;
    host: string;
    /**
     * Format: double
     * @description Largest change of a log-probability on all prompts.
     */
    largest_change: number;
    /** @description Norm of what the version adds to the matrices of each layer, divided by their norm. */
    layer_changes: number[];
    prompts: ProbedPrompt[];
    /** @description Number of tokens that were generated with the version. */
    tokens: number;
    verdict: VerdictEnum;
};
/** @enum {string} */
export type VersionState = "validated" | "staging" | "ready" | "failed" | "archived" | "deleted";
/** @description A version's requests since the canary began; times are medians without the adapter's load. */
export type VersionStats = {
    failed: number;
    /**
     * Format: double
     * @description Median time to the first token, in milliseconds; null: nothing was measured.
     */
    first_token_ms: number | null;
    /**
     * Format: double
     * @description Median of the requests' mean times between tokens, in milliseconds; null: nothing was measured.
     */
    inter_token_ms: number | null;
    requests: number;
};
export type VersionSummary = {
    /** @description Number format on hosts with adapters in FP8: auto (FP8 where it agrees), bf16 (never FP8) or fp8 (in any case). */
    adapter_dtype: AdapterDtypeEnum;
    /** @description Agreement with the unquantised base model; null until a host has measured it, and where the base model is not quantised. */
    agreement: (AgreementOutcome | NullEnum) | null;
    /** @description Whether a person has to confirm the base model before the version can become live. */
    asks_for_base: boolean;
    /** @description Whether a person has to confirm the version before it can become live: it changes nothing, overflows, or differs on the quantised base model. */
    asks_for_effect: boolean;
    base_model: string;
    bytes: number;
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that uploaded the version; null: an API key did, or the account no longer exists. */
    created_by?: string | null;
    digest: string;
    dtype: string;
    /** @description Reason why the version failed; null: it has not failed, or is staged again. */
    error: Problem | null;
    /**
     * Format: date-time
     * @description Time until which an archived version can be restored; null: it is not archived.
     */
    readonly kept_until: string | null;
    /** @description Base model that the adapter's configuration names, if it is not the one served. */
    named_base: string;
    num_parameters: number;
    number: number;
    /**
     * Format: date-time
     * @description Time at which a request first ended with adapter_overflow: the weights are too large. Null: never.
     */
    overflowed_at: string | null;
    rank: number;
    state: VersionState;
    targets: string[];
    /** @description Whether the version changes answers; null until a host has measured it. */
    verdict: (VerdictEnum | NullEnum) | null;
};
/** @description The tier of a version on a host, and how long a request would wait for it there. */
export type VersionTier = {
    by_tier: ColdStarts;
    /**
     * Format: double
     * @description Milliseconds that a request would wait for the version from its current tier; null: not known.
     */
    cold_start_ms: number | null;
    /** @description Units of the adapter's experts; null: it has none, is not on the device, or the host keeps all in its page pool. */
    experts: AdapterExperts | null;
    host: string;
    /** @description Tier on which the host has the version; `store`: the host has no copy. */
    tier: AdapterPlace;
};
export type WantedService = {
    service: HostService;
};
export type WantedServiceRequest = {
    service: HostService;
};
export type Webhook = {
    /** @default true */
    active: boolean;
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that added the webhook; null: the account no longer exists. */
    created_by?: string | null;
    /** @default  */
    description: string;
    /** @description Types of events to send; empty = all. */
    events?: EventType[];
    /** @description Number of failed attempts in a row. */
    failures: number;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description Time before which nothing is sent, after a failure or a slow answer; null: no pause.
     */
    rests_until: string | null;
    /** @description Address of the endpoint: https only, at a public address. */
    url: string;
};
export type WebhookSettingsRequest = {
    /** @description By default true. */
    active?: boolean;
    description?: string;
    /** @description Types of events to send; empty = all. */
    events?: EventType[];
    /** @description Address of the endpoint: https only, at a public address. */
    url: string;
};
export type WebhookWithSecret = {
    /** @default true */
    active: boolean;
    /** Format: date-time */
    created_at: string;
    /** @description E-mail address of the account that added the webhook; null: the account no longer exists. */
    created_by?: string | null;
    /** @default  */
    description: string;
    /** @description Types of events to send; empty = all. */
    events?: EventType[];
    /** @description Number of failed attempts in a row. */
    failures: number;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description Time before which nothing is sent, after a failure or a slow answer; null: no pause.
     */
    rests_until: string | null;
    /** @description Secret that signs the messages, shown only once. */
    secret: string;
    /** @description Address of the endpoint: https only, at a public address. */
    url: string;
};

export interface Operations {
    "POST /api/hosts/join": {
        answer: Joined;
        input: {
            body: JoinRequest;
        };
    };
    "POST /api/invitations/accept": {
        answer: Session;
        input: {
            body: AcceptInvitationRequest;
        };
    };
    "POST /api/invitations/read": {
        answer: InvitationDetails;
        input: {
            body: InvitationTokenRequest;
        };
    };
    "GET /api/operator/audit": {
        answer: AuditPage;
        input: {
            query?: {
                /** @description Action such as "key.create", or "key" for all actions on keys. */
                action?: string;
                /** @description Part of the name or address of the person or key that acted. */
                actor?: string;
                before?: number;
                /**
                 * Format: date-time
                 * @description Earliest time of the events, included.
                 */
                since?: string;
                size?: number;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /** @description Short name of a tenant; "-" for events that belong to none. */
                tenant?: string;
                /**
                 * Format: date-time
                 * @description Time before which the events lie.
                 */
                until?: string;
            };
        };
    };
    "GET /api/operator/audit.csv": {
        answer: string;
        input: {
            query?: {
                /** @description Action such as "key.create", or "key" for all actions on keys. */
                action?: string;
                /** @description Part of the name or address of the person or key that acted. */
                actor?: string;
                /**
                 * Format: date-time
                 * @description Earliest time of the events, included.
                 */
                since?: string;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /** @description Short name of a tenant; "-" for events that belong to none. */
                tenant?: string;
                /**
                 * Format: date-time
                 * @description Time before which the events lie.
                 */
                until?: string;
            };
        };
    };
    "GET /api/operator/base-model": {
        answer: BaseModel;
        input: Record<string, never>;
    };
    "PUT /api/operator/base-model": {
        answer: BaseModel;
        input: {
            body: NewBaseModelRequest;
        };
    };
    "GET /api/operator/base-models": {
        answer: ListedBaseModel[];
        input: Record<string, never>;
    };
    "POST /api/operator/base-models": {
        answer: BaseModel;
        input: {
            body: ApprovedBaseModelRequest;
        };
    };
    "PATCH /api/operator/base-models/{digest}": {
        answer: BaseModel;
        input: {
            body?: PatchedBaseModelChangeRequest;
            digest: string;
        };
    };
    "DELETE /api/operator/base-models/{digest}": {
        input: {
            digest: string;
        };
    };
    "GET /api/operator/fairness": {
        answer: Fairness;
        input: {
            query?: {
                /**
                 * @description Length of the window before `until`; ignored if `since` is sent.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description Start of the window, inclusive, rounded down as `until` describes; left out: see `range`.
                 */
                since?: string;
                /** @description Length of a step in seconds; left out: chosen by the length of the window. */
                step?: number;
                /**
                 * Format: date-time
                 * @description End of the window, exclusive: adjacent windows add up. Both ends are rounded down to the minute, or to the hour if they are more than two days ago; the response contains both. They need not be at the start of a step. Left out: the end of the current step.
                 */
                until?: string;
            };
        };
    };
    "GET /api/operator/hosts": {
        answer: OperatorHost[];
        input: Record<string, never>;
    };
    "DELETE /api/operator/hosts/{host_name}": {
        input: {
            host_name: string;
        };
    };
    "DELETE /api/operator/hosts/{host_name}/credential": {
        input: {
            host_name: string;
        };
    };
    "GET /api/operator/hosts/{host_name}/pages": {
        answer: HostPages;
        input: {
            host_name: string;
            query?: {
                /** @description Minimum age in seconds of the map to return; 0: the current map. */
                ago_s?: number;
            };
        };
    };
    "POST /api/operator/hosts/{host_name}/restart": {
        answer: Restart;
        input: {
            body?: RestartRequest;
            host_name: string;
        };
    };
    "PUT /api/operator/hosts/{host_name}/service": {
        answer: WantedService;
        input: {
            body: WantedServiceRequest;
            host_name: string;
        };
    };
    "GET /api/operator/join-tokens": {
        answer: JoinToken[];
        input: Record<string, never>;
    };
    "POST /api/operator/join-tokens": {
        answer: CreatedJoinToken;
        input: {
            body?: NewJoinTokenRequest;
        };
    };
    "DELETE /api/operator/join-tokens/{token_id}": {
        input: {
            /** Format: uuid */
            token_id: string;
        };
    };
    "GET /api/operator/prices": {
        answer: PriceVersion[];
        input: Record<string, never>;
    };
    "POST /api/operator/prices": {
        answer: PriceVersion;
        input: {
            body: NewPricesRequest;
        };
    };
    "POST /api/operator/prices/end": {
        answer: PriceVersion;
        input: {
            body: EndPricesRequest;
        };
    };
    "GET /api/operator/refusals/series": {
        answer: RefusalSeries;
        input: {
            query?: {
                /**
                 * @description Length of the window before `until`; ignored if `since` is sent.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description Start of the window, inclusive, rounded down as `until` describes; left out: see `range`.
                 */
                since?: string;
                /** @description Length of a step in seconds; left out: chosen by the length of the window. */
                step?: number;
                /** @description Slug of a tenant; left out: all tenants. */
                tenant?: string;
                /**
                 * Format: date-time
                 * @description End of the window, exclusive: adjacent windows add up. Both ends are rounded down to the minute, or to the hour if they are more than two days ago; the response contains both. They need not be at the start of a step. Left out: the end of the current step.
                 */
                until?: string;
            };
        };
    };
    "GET /api/operator/report": {
        answer: OperatorReport;
        input: {
            query?: {
                /** @description Current name of a base model, which may be withdrawn; left out: all base models. */
                base_model?: string;
                days?: number;
                /**
                 * Format: date
                 * @description First day (UTC); requires `to`, and replaces `days`.
                 */
                from?: string;
                /** Format: date */
                to?: string;
            };
        };
    };
    "GET /api/operator/series": {
        answer: SeriesReport;
        input: {
            query?: {
                /** @description Current name of a base model, which may be withdrawn; left out: all base models. */
                base_model?: string;
                /** @description Full name of a host. */
                host?: string;
                /**
                 * @description Length of the window before `until`; ignored if `since` is sent.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description Start of the window, inclusive, rounded down as `until` describes; left out: see `range`.
                 */
                since?: string;
                /** @description Length of a step in seconds; left out: chosen by the length of the window. */
                step?: number;
                /** @description Slug of a tenant; left out: all tenants. */
                tenant?: string;
                /**
                 * Format: date-time
                 * @description End of the window, exclusive: adjacent windows add up. Both ends are rounded down to the minute, or to the hour if they are more than two days ago; the response contains both. They need not be at the start of a step. Left out: the end of the current step.
                 */
                until?: string;
            };
        };
    };
    "GET /api/operator/staging": {
        answer: StagingPage;
        input: {
            query?: {
                host?: string;
                limit?: number;
                offset?: number;
                /**
                 * @description Phase of the placements to return; empty: all that are not ready.
                 * @enum {string}
                 */
                phase?: "queued" | "downloading" | "verifying" | "loading" | "ready" | "failed" | "";
                search?: string;
            };
        };
    };
    "POST /api/operator/staging/{placement_id}/retry": {
        input: {
            /** Format: uuid */
            placement_id: string;
        };
    };
    "GET /api/operator/tenants": {
        answer: TenantPage;
        input: {
            query?: {
                limit?: number;
                offset?: number;
                search?: string;
                /** @enum {string} */
                sort?: "name" | "-name" | "created_at" | "-created_at" | "weight" | "-weight" | "requests" | "-requests";
                /**
                 * @description State of the tenants; without it, all that are not deleted.
                 * @enum {string}
                 */
                state?: "active" | "suspended" | "deleted" | "";
            };
        };
    };
    "POST /api/operator/tenants": {
        answer: CreatedTenant;
        input: {
            body: NewTenantRequest;
        };
    };
    "GET /api/operator/tenants/{slug}/statement": {
        answer: Statement;
        input: {
            query?: {
                /** @description Year and month, such as 2026-05; by default the current month (UTC). */
                month?: string;
            };
            slug: string;
        };
    };
    "GET /api/operator/tenants/{tenant}": {
        answer: TenantDetail;
        input: {
            tenant: string;
        };
    };
    "PATCH /api/operator/tenants/{tenant}": {
        answer: Tenant;
        input: {
            body?: PatchedTenantNameRequest;
            tenant: string;
        };
    };
    "DELETE /api/operator/tenants/{tenant}": {
        answer: Tenant;
        input: {
            query?: {
                /** @description Short name of the tenant, as a confirmation. */
                confirm?: string;
            };
            tenant: string;
        };
    };
    "GET /api/operator/tenants/{tenant}/adapters": {
        answer: TenantAdapterPage;
        input: {
            query?: {
                limit?: number;
                offset?: number;
                search?: string;
            };
            tenant: string;
        };
    };
    "GET /api/operator/tenants/{tenant}/budgets": {
        answer: BudgetReport;
        input: {
            tenant: string;
        };
    };
    "PUT /api/operator/tenants/{tenant}/budgets": {
        answer: BudgetReport;
        input: {
            body?: BudgetsRequest;
            tenant: string;
        };
    };
    "POST /api/operator/tenants/{tenant}/invitations": {
        answer: CreatedInvitation;
        input: {
            body: OwnerInvitationRequest;
            tenant: string;
        };
    };
    "GET /api/operator/tenants/{tenant}/limits": {
        answer: TenantLimits;
        input: {
            tenant: string;
        };
    };
    "PUT /api/operator/tenants/{tenant}/limits": {
        answer: TenantLimits;
        input: {
            body?: TenantLimitsRequest;
            tenant: string;
        };
    };
    "GET /api/operator/tenants/{tenant}/members": {
        answer: TenantMemberPage;
        input: {
            query?: {
                limit?: number;
                offset?: number;
                search?: string;
            };
            tenant: string;
        };
    };
    "DELETE /api/operator/tenants/{tenant}/members/{user_id}/identities/{identity_id}": {
        input: {
            identity_id: number;
            tenant: string;
            /** Format: uuid */
            user_id: string;
        };
    };
    "DELETE /api/operator/tenants/{tenant}/members/{user_id}/second-factor": {
        input: {
            tenant: string;
            /** Format: uuid */
            user_id: string;
        };
    };
    "PUT /api/operator/tenants/{tenant}/objectives": {
        answer: LatencyObjectives;
        input: {
            body?: LatencyObjectivesRequest;
            tenant: string;
        };
    };
    "PUT /api/operator/tenants/{tenant}/suspension": {
        answer: Tenant;
        input: {
            body: SuspensionRequest;
            tenant: string;
        };
    };
    "DELETE /api/operator/tenants/{tenant}/suspension": {
        answer: Tenant;
        input: {
            tenant: string;
        };
    };
    "PUT /api/operator/tenants/{tenant}/weight": {
        answer: TenantWeight;
        input: {
            body: TenantWeightRequest;
            tenant: string;
        };
    };
    "GET /api/operator/usage.csv": {
        answer: string;
        input: {
            query?: {
                /** @description Current name of a base model, which may be withdrawn; left out: all base models. */
                base_model?: string;
                days?: number;
                /**
                 * Format: date
                 * @description First day (UTC); requires `to`, and replaces `days`.
                 */
                from?: string;
                /** @enum {string} */
                grain?: "day" | "hour";
                /** Format: date */
                to?: string;
            };
        };
    };
    "POST /api/password": {
        answer: Session;
        input: {
            body: ChangePasswordRequest;
        };
    };
    "POST /api/password/forgot": {
        input: {
            body: ForgotPasswordRequest;
        };
    };
    "POST /api/password/reset": {
        input: {
            body: ResetPasswordRequest;
        };
    };
    "PUT /api/profile": {
        answer: Session;
        input: {
            body: ProfileRequest;
        };
    };
    "GET /api/second-factors": {
        answer: SecondFactors;
        input: Record<string, never>;
    };
    "POST /api/second-factors/app": {
        answer: AppSetup;
        input: Record<string, never>;
    };
    "DELETE /api/second-factors/app": {
        input: Record<string, never>;
    };
    "POST /api/second-factors/app/confirm": {
        answer: RecoveryCodes;
        input: {
            body: CodeRequest;
        };
    };
    "POST /api/second-factors/passkeys": {
        answer: AddedPasskey;
        input: {
            body: NewPasskeyRequest;
        };
    };
    "DELETE /api/second-factors/passkeys/{passkey_id}": {
        input: {
            /** Format: uuid */
            passkey_id: string;
        };
    };
    "POST /api/second-factors/passkeys/options": {
        answer: {
            [key: string]: unknown;
        };
        input: Record<string, never>;
    };
    "POST /api/second-factors/recovery-codes": {
        answer: RecoveryCodes;
        input: Record<string, never>;
    };
    "GET /api/session": {
        answer: Session;
        input: Record<string, never>;
    };
    "POST /api/session": {
        answer: Session;
        input: {
            body: LoginRequest;
        };
    };
    "DELETE /api/session": {
        answer: Session;
        input: Record<string, never>;
    };
    "GET /api/session/confirmation": {
        answer: Methods;
        input: Record<string, never>;
    };
    "POST /api/session/confirmation": {
        answer: Session;
        input: {
            body?: IdentityConfirmationRequest;
        };
    };
    "POST /api/session/passkey": {
        answer: {
            [key: string]: unknown;
        };
        input: Record<string, never>;
    };
    "GET /api/session/second-factor": {
        answer: Methods;
        input: Record<string, never>;
    };
    "POST /api/session/second-factor": {
        answer: Session;
        input: {
            body?: SecondFactorRequest;
        };
    };
    "GET /api/sessions": {
        answer: Device[];
        input: Record<string, never>;
    };
    "DELETE /api/sessions": {
        input: Record<string, never>;
    };
    "DELETE /api/sessions/{session_id}": {
        input: {
            /** Format: uuid */
            session_id: string;
        };
    };
    "GET /api/tenants/{tenant}/adapters": {
        answer: AdapterSummary[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
                /** @enum {string} */
                sort?: "name" | "-name" | "rank" | "-rank" | "bytes" | "-bytes" | "created_at" | "-created_at";
                /**
                 * @description Status of the live version, else of the newest; staging includes validated ones.
                 * @enum {string}
                 */
                status?: "empty" | "validated" | "staging" | "ready" | "failed" | "archived" | "";
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/adapters/{name}": {
        answer: Adapter;
        input: {
            name: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/adapters/{name}": {
        input: {
            name: string;
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/adapters/{name}/aliases/{alias}": {
        answer: Adapter;
        input: {
            alias: string;
            body: AliasTargetRequest;
            name: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/adapters/{name}/aliases/{alias}": {
        input: {
            alias: string;
            name: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/adapters/{name}/aliases/{alias}/canary": {
        answer: CanaryComparison;
        input: {
            alias: string;
            name: string;
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/adapters/{name}/aliases/{alias}/canary": {
        answer: Adapter;
        input: {
            alias: string;
            body: CanaryTargetRequest;
            name: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/adapters/{name}/aliases/{alias}/canary": {
        input: {
            alias: string;
            name: string;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/adapters/{name}/aliases/{alias}/rollback": {
        answer: Adapter;
        input: {
            alias: string;
            name: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/adapters/{name}/pin": {
        answer: Pin;
        input: {
            name: string;
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/adapters/{name}/pin": {
        answer: Pin;
        input: {
            name: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/adapters/{name}/pin": {
        input: {
            name: string;
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/adapters/{name}/promotion-rule": {
        answer: Adapter;
        input: {
            body: NewPromotionRuleRequest;
            name: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/adapters/{name}/promotion-rule": {
        input: {
            name: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/adapters/{name}/versions/{number}": {
        answer: Version;
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/adapters/{name}/versions/{number}": {
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/adapters/{name}/versions/{number}/archive": {
        answer: Version;
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/adapters/{name}/versions/{number}/confirm-base": {
        answer: Version;
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/adapters/{name}/versions/{number}/confirm-effect": {
        answer: Version;
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/adapters/{name}/versions/{number}/dtype": {
        answer: Version;
        input: {
            body: AdapterDtypeRequest;
            name: string;
            number: number;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/adapters/{name}/versions/{number}/promote": {
        answer: Version;
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/adapters/{name}/versions/{number}/restage": {
        answer: Version;
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/adapters/{name}/versions/{number}/restore": {
        answer: Version;
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/adapters/{name}/versions/{number}/tiers": {
        answer: VersionTier[];
        input: {
            name: string;
            number: number;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/api-settings": {
        answer: ApiSettings;
        input: {
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/api-settings": {
        answer: ApiSettings;
        input: {
            body: ApiSettingsRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/archived-adapters": {
        answer: ArchivedAdapter[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
                /** @enum {string} */
                sort?: "name" | "-name" | "archived_at" | "-archived_at";
            };
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/archived-adapters/{adapter_id}": {
        input: {
            /** Format: uuid */
            adapter_id: string;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/archived-adapters/{adapter_id}/restore": {
        answer: Adapter;
        input: {
            /** Format: uuid */
            adapter_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/audit": {
        answer: AuditPage;
        input: {
            query?: {
                /** @description Action such as "key.create", or "key" for all actions on keys. */
                action?: string;
                /** @description Part of the name or address of the person or key that acted. */
                actor?: string;
                before?: number;
                /**
                 * Format: date-time
                 * @description Earliest time of the events, included.
                 */
                since?: string;
                size?: number;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /**
                 * Format: date-time
                 * @description Time before which the events lie.
                 */
                until?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/audit.csv": {
        answer: string;
        input: {
            query?: {
                /** @description Action such as "key.create", or "key" for all actions on keys. */
                action?: string;
                /** @description Part of the name or address of the person or key that acted. */
                actor?: string;
                /**
                 * Format: date-time
                 * @description Earliest time of the events, included.
                 */
                since?: string;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /**
                 * Format: date-time
                 * @description Time before which the events lie.
                 */
                until?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/batches": {
        answer: Batch[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
            };
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/batches": {
        answer: Batch;
        input: {
            body: NewBatchRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/batches/{batch_id}": {
        answer: Batch;
        input: {
            batch_id: string;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/batches/{batch_id}/cancel": {
        answer: Batch;
        input: {
            batch_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/batches/{batch_id}/errors": {
        answer: LineError[];
        input: {
            batch_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/bucket-credentials": {
        answer: BucketCredentials[];
        input: {
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/bucket-credentials": {
        answer: BucketCredentials;
        input: {
            body: BucketCredentialsRequest;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/bucket-credentials/{bucket}": {
        input: {
            bucket: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/budgets": {
        answer: BudgetReport;
        input: {
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/budgets": {
        answer: BudgetReport;
        input: {
            body?: BudgetsRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/evaluation-sets": {
        answer: EvaluationSet[];
        input: {
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/evaluation-sets": {
        answer: EvaluationSet;
        input: {
            body: NewEvaluationSetRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/evaluation-sets/{set_name}": {
        answer: EvaluationSet;
        input: {
            set_name: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/evaluation-sets/{set_name}": {
        input: {
            set_name: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/evaluations": {
        answer: Evaluation[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
            };
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/evaluations": {
        answer: Evaluation;
        input: {
            body: NewEvaluationRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/evaluations/{evaluation_id}": {
        answer: Evaluation;
        input: {
            /** Format: uuid */
            evaluation_id: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/evaluations/{evaluation_id}": {
        input: {
            /** Format: uuid */
            evaluation_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/export-schedules": {
        answer: ExportSchedule[];
        input: {
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/export-schedules": {
        answer: ExportSchedule;
        input: {
            body: NewExportScheduleRequest;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/export-schedules/{schedule_id}": {
        input: {
            /** Format: uuid */
            schedule_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/exports": {
        answer: Export[];
        input: {
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/exports": {
        answer: Export;
        input: {
            body?: NewExportRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/exports/{export_id}": {
        answer: Export;
        input: {
            /** Format: uuid */
            export_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/exports/{export_id}/file": {
        /** Format: binary */
        answer: string;
        input: {
            /** Format: uuid */
            export_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/files": {
        answer: StoredFile[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
            };
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/files/{file_id}": {
        input: {
            file_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/files/{file_id}/content": {
        /** Format: binary */
        answer: string;
        input: {
            file_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/follows": {
        answer: HubFollow[];
        input: {
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/follows": {
        answer: HubFollow;
        input: {
            body: HubFollowRequest;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/follows/{follow_id}": {
        input: {
            /** Format: uuid */
            follow_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/hosts": {
        answer: Host[];
        input: {
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/hosts/{host_name}/pages": {
        answer: HostPages;
        input: {
            host_name: string;
            query?: {
                /** @description Minimum age in seconds of the map to return; 0: the current map. */
                ago_s?: number;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/hub-models": {
        answer: HubModels;
        input: {
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/hub-models": {
        answer: HubModels;
        input: {
            body: HubModelsRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/hub-token": {
        answer: HubToken;
        input: {
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/hub-token": {
        answer: HubToken;
        input: {
            body: HubTokenRequest;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/hub-token": {
        input: {
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/imports": {
        answer: Upload;
        input: {
            body: NewImportRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/invitations": {
        answer: Invitation[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
            };
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/invitations": {
        answer: CreatedInvitation;
        input: {
            body: NewInvitationRequest;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/invitations/{invitation_id}": {
        input: {
            /** Format: uuid */
            invitation_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/keys": {
        answer: ApiKey[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /**
                 * @description Only keys with this scope.
                 * @enum {string}
                 */
                scope?: "adapters.write" | "infer" | "view" | "";
                /** @description Part of the name. */
                search?: string;
                /** @enum {string} */
                sort?: "name" | "-name" | "created_at" | "-created_at" | "last_used_at" | "-last_used_at" | "expires_at" | "-expires_at";
                /**
                 * @description `usable` keys are neither revoked nor expired. Left out: all.
                 * @enum {string}
                 */
                state?: "usable" | "not_revoked" | "revoked" | "";
            };
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/keys": {
        answer: CreatedApiKey;
        input: {
            body: NewApiKeyRequest;
            tenant: string;
        };
    };
    "PATCH /api/tenants/{tenant}/keys/{key_id}": {
        answer: ApiKey;
        input: {
            body?: PatchedChangeApiKeyRequest;
            /** Format: uuid */
            key_id: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/keys/{key_id}": {
        input: {
            /** Format: uuid */
            key_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/keys/{key_id}/budgets": {
        answer: BudgetStates;
        input: {
            /** Format: uuid */
            key_id: string;
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/keys/{key_id}/budgets": {
        answer: BudgetReport;
        input: {
            body?: BudgetsRequest;
            /** Format: uuid */
            key_id: string;
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/keys/{key_id}/limits": {
        answer: KeyLimits;
        input: {
            body?: KeyLimitsRequest;
            /** Format: uuid */
            key_id: string;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/keys/{key_id}/rotate": {
        answer: CreatedApiKey;
        input: {
            body?: RotateApiKeyRequest;
            /** Format: uuid */
            key_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/limits": {
        answer: UsageAgainstLimits;
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/members": {
        answer: Member[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
                /**
                 * @description Order of the rows; by role, the roles with the most rights come first.
                 * @enum {string}
                 */
                sort?: "email" | "-email" | "role" | "-role" | "joined_at" | "-joined_at";
            };
            tenant: string;
        };
    };
    "PATCH /api/tenants/{tenant}/members/{user_id}": {
        answer: Member;
        input: {
            body?: PatchedNewRoleRequest;
            tenant: string;
            /** Format: uuid */
            user_id: string;
        };
    };
    "DELETE /api/tenants/{tenant}/members/{user_id}": {
        input: {
            tenant: string;
            /** Format: uuid */
            user_id: string;
        };
    };
    "DELETE /api/tenants/{tenant}/membership": {
        input: {
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/models": {
        answer: Model[];
        input: {
            query?: {
                /** @description Maximum number of rows; without it, all. */
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/origins": {
        answer: AllowedOrigins;
        input: {
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/origins": {
        answer: AllowedOrigins;
        input: {
            body: AllowedOriginsRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/overview": {
        answer: Overview;
        input: {
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/pinned-prefixes": {
        answer: Prefix;
        input: {
            body: NewPrefixRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/pinned-prefixes/{prefix_name}": {
        answer: PrefixText;
        input: {
            prefix_name: string;
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/pinned-prefixes/{prefix_name}": {
        input: {
            prefix_name: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/pins": {
        answer: TenantPins;
        input: {
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/prices": {
        answer: PriceVersion[];
        input: {
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/recording": {
        answer: Recording;
        input: {
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/recording": {
        answer: Recording;
        input: {
            body: RecordingRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/refusals": {
        answer: RefusalPage;
        input: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/refusals/series": {
        answer: RefusalSeries;
        input: {
            query?: {
                /**
                 * @description Length of the window before `until`; ignored if `since` is sent.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description Start of the window, inclusive, rounded down as `until` describes; left out: see `range`.
                 */
                since?: string;
                /** @description Length of a step in seconds; left out: chosen by the length of the window. */
                step?: number;
                /**
                 * Format: date-time
                 * @description End of the window, exclusive: adjacent windows add up. Both ends are rounded down to the minute, or to the hour if they are more than two days ago; the response contains both. They need not be at the start of a step. Left out: the end of the current step.
                 */
                until?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/requests": {
        answer: RequestPage;
        input: {
            query?: {
                /** @description Full name of the adapter. */
                adapter?: string;
                /** @description Part of the adapter's name. */
                adapter_contains?: string;
                /** @description Current name of the base model that ran the request. */
                base_model?: string;
                cursor?: string;
                /** @description Full error code of the request. */
                error?: string;
                /** @description Full name of a host. */
                host?: string;
                /** @description Full id of the request. */
                id?: string;
                /** @description Id of an API key, or "console": requests of members in the console. */
                key?: string;
                limit?: number;
                /** @description Minimum time to the first token, in milliseconds. */
                min_first_token_ms?: number;
                /** @description Minimum time of all phases of a request together, in milliseconds. */
                min_ms?: number;
                /** @description Minimum number of prompt and output tokens together. */
                min_tokens?: number;
                /** @description Part of the model name as the client wrote it. */
                model?: string;
                /** @enum {string} */
                outcome?: "finished" | "aborted" | "failed" | "refused" | "";
                /**
                 * Format: date-time
                 * @description Only requests that came in at this time or later.
                 */
                since?: string;
                /**
                 * Format: date-time
                 * @description Only requests that came in before this time.
                 */
                until?: string;
                /** @description Version number of the adapter. */
                version?: number;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/requests/{request_id}/transcript": {
        answer: Transcript;
        input: {
            request_id: string;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/security": {
        answer: Security;
        input: {
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/security": {
        answer: Security;
        input: {
            body: RequirementRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/series": {
        answer: SeriesReport;
        input: {
            query?: {
                /** @description Full name of an adapter, whose versions are reported side by side. */
                adapter?: string;
                /** @description Current name of a base model, which may be withdrawn; left out: all base models. */
                base_model?: string;
                /** @description Full name of a host. */
                host?: string;
                /**
                 * @description Length of the window before `until`; ignored if `since` is sent.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description Start of the window, inclusive, rounded down as `until` describes; left out: see `range`.
                 */
                since?: string;
                /** @description Length of a step in seconds; left out: chosen by the length of the window. */
                step?: number;
                /**
                 * Format: date-time
                 * @description End of the window, exclusive: adjacent windows add up. Both ends are rounded down to the minute, or to the hour if they are more than two days ago; the response contains both. They need not be at the start of a step. Left out: the end of the current step.
                 */
                until?: string;
                /** @description Version number of `adapter`; left out: all. */
                version?: number;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/series/parts": {
        answer: UsagePart[];
        input: {
            query: {
                /** @description Current name of a base model, which may be withdrawn; left out: all base models. */
                base_model?: string;
                /** @enum {string} */
                by: "adapter" | "key";
                limit?: number;
                offset?: number;
                /**
                 * @description Length of the window before `until`; ignored if `since` is sent.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /** @description Part of the name, or of an API key's prefix. */
                search?: string;
                /**
                 * Format: date-time
                 * @description Start of the window, inclusive, rounded down as `until` describes; left out: see `range`.
                 */
                since?: string;
                /**
                 * @description Figure to sort by, the largest first.
                 * @enum {string}
                 */
                sort?: "requests" | "tokens" | "device_us";
                /** @description Length of a step in seconds; left out: chosen by the length of the window. */
                step?: number;
                /**
                 * Format: date-time
                 * @description End of the window, exclusive: adjacent windows add up. Both ends are rounded down to the minute, or to the hour if they are more than two days ago; the response contains both. They need not be at the start of a step. Left out: the end of the current step.
                 */
                until?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/slo": {
        answer: SloReport;
        input: {
            query?: {
                days?: number;
            };
            tenant: string;
        };
    };
    "PUT /api/tenants/{tenant}/slo": {
        answer: LatencyObjectives;
        input: {
            body?: LatencyObjectivesRequest;
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/socket-ticket": {
        answer: SocketTicket;
        input: {
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/statement": {
        answer: Statement;
        input: {
            query?: {
                /** @description Year and month, such as 2026-05; by default the current month (UTC). */
                month?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/storage": {
        answer: Storage;
        input: {
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/transcripts": {
        answer: Transcript[];
        input: {
            query: {
                /** @description The id of a request. */
                request: string;
            };
            tenant: string;
        };
    };
    "DELETE /api/tenants/{tenant}/transcripts": {
        input: {
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/uploads": {
        answer: Upload[];
        input: {
            query?: {
                limit?: number;
                offset?: number;
                /** @description Part of the name. */
                search?: string;
            };
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/uploads": {
        answer: Upload;
        input: {
            body: NewUploadRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/uploads/{upload_id}": {
        answer: Upload;
        input: {
            tenant: string;
            /** Format: uuid */
            upload_id: string;
        };
    };
    "DELETE /api/tenants/{tenant}/uploads/{upload_id}": {
        answer: Upload;
        input: {
            tenant: string;
            /** Format: uuid */
            upload_id: string;
        };
    };
    "GET /api/tenants/{tenant}/usage": {
        answer: UsageReport;
        input: {
            query?: {
                /** @description Current name of a base model, which may be withdrawn; left out: all base models. */
                base_model?: string;
                days?: number;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/usage.csv": {
        answer: string;
        input: {
            query?: {
                /** @description Current name of a base model, which may be withdrawn; left out: all base models. */
                base_model?: string;
                days?: number;
                /**
                 * Format: date
                 * @description First day (UTC); requires `to`, and replaces `days`.
                 */
                from?: string;
                /** @enum {string} */
                grain?: "day" | "hour";
                /** Format: date */
                to?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/webhooks": {
        answer: Webhook[];
        input: {
            tenant: string;
        };
    };
    "POST /api/tenants/{tenant}/webhooks": {
        answer: WebhookWithSecret;
        input: {
            body: WebhookSettingsRequest;
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/webhooks/{webhook_id}": {
        answer: Webhook;
        input: {
            tenant: string;
            /** Format: uuid */
            webhook_id: string;
        };
    };
    "PUT /api/tenants/{tenant}/webhooks/{webhook_id}": {
        answer: Webhook;
        input: {
            body: WebhookSettingsRequest;
            tenant: string;
            /** Format: uuid */
            webhook_id: string;
        };
    };
    "DELETE /api/tenants/{tenant}/webhooks/{webhook_id}": {
        input: {
            tenant: string;
            /** Format: uuid */
            webhook_id: string;
        };
    };
    "GET /api/tenants/{tenant}/webhooks/{webhook_id}/deliveries": {
        answer: Delivery[];
        input: {
            tenant: string;
            /** Format: uuid */
            webhook_id: string;
        };
    };
    "POST /api/tenants/{tenant}/webhooks/{webhook_id}/deliveries/{delivery_id}/replay": {
        answer: Delivery;
        input: {
            /** Format: uuid */
            delivery_id: string;
            tenant: string;
            /** Format: uuid */
            webhook_id: string;
        };
    };
    "POST /api/tenants/{tenant}/webhooks/{webhook_id}/rotate": {
        answer: WebhookWithSecret;
        input: {
            tenant: string;
            /** Format: uuid */
            webhook_id: string;
        };
    };
    "POST /api/tenants/{tenant}/webhooks/{webhook_id}/test": {
        answer: Delivery;
        input: {
            tenant: string;
            /** Format: uuid */
            webhook_id: string;
        };
    };
    "GET /version": {
        answer: ServerVersion;
        input: Record<string, never>;
    };
}
