// Generated from openapi.json by `npm run gen`. Do not edit.

export type AcceptInvitationRequest = {
    name?: string;
    /** @description For a new account. */
    password?: string;
    token: string;
};
/** @enum {string} */
export type ActorKind = "user" | "key" | "system";
/** @description An adapter in a list. Rank, targets, size and base are those of the live version, else of the newest. */
export type Adapter = {
    aliases: Alias[];
    base_model: string | null;
    bytes: number | null;
    /** Format: date-time */
    created_at: string;
    description: string;
    live_version: number | null;
    name: string;
    promotion_rule: PromotionRule | null;
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
    /** @description In the page pool now; the others are read from host memory. */
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
    /** @description Target -> its ranks. */
    ranks: {
        [key: string]: number[];
    };
    /** @description Target -> its scales. */
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
    base_model: string | null;
    bytes: number | null;
    /** Format: date-time */
    created_at: string;
    description: string;
    live_version: number | null;
    name: string;
    rank: number | null;
    status: AdapterStatus;
    targets: string[];
    versions_count: number;
};
/** @enum {string} */
export type AdapterTier = "device" | "host" | "disk";
export type AdapterUsage = {
    /** @description Null = the base model. */
    adapter: string | null;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    prompt_tokens: number;
    requests: number;
};
export type AddedPasskey = {
    passkey: Passkey;
    /** @description Shown this once. Empty unless this was the first second factor. */
    recovery_codes: string[];
};
/** @description The distance of a version's answers on a quantised base from those on the unquantised one, and the base's own. */
export type Agreement = {
    /** @description With the version. */
    adapter: AgreementFigures | null;
    /** @description Without the version; null until it is measured. */
    base: AgreementFigures | null;
    /** @description Compared with the dequantised weights: the checkpoint of the base is quantised and has no others. */
    dequantised: boolean;
    elapsed_ms: number;
    /** @description Of each layer: the norm of what quantisation changes in its matrices, by the norm of those. */
    layer_changes: number[];
    outcome: AgreementOutcome;
    /** @description In the order of the effect's prompts. */
    prompts: PromptAgreement[];
    /** @description Why it differs, or why it was not measured and what to do. */
    reason: string;
};
/** @description Served answers compared with those of the same model without its quantisation. */
export type AgreementFigures = {
    /** @description How many the unquantised model chooses too, behind the same text. */
    agreeing: number;
    /** Format: double */
    largest_distance: number;
    /**
     * Format: double
     * @description Of log-probabilities, on the prompts.
     */
    mean_distance: number;
    /** @description How many were generated. */
    tokens: number;
};
/** @enum {string} */
export type AgreementOutcome = "pending" | "agrees" | "differs" | "not_measured";
export type Alias = {
    canary?: number | null;
    canary_percent: number | null;
    /** Format: date-time */
    canary_since: string | null;
    name: string;
    /** @description Where a rollback leads. */
    previous?: number | null;
    rolled_back: CanaryRollback | null;
    /**
     * Format: date-time
     * @description Since when it points at this version, whatever canary it had.
     */
    updated_at: string;
    version: number;
};
export type AliasTargetRequest = {
    version: number;
};
/** @description The origins of web pages that may call inference with this tenant's keys. */
export type AllowedOrigins = {
    /** @description Like https://app.example.org, without a path. None by default. */
    origins: string[];
};
/** @description The origins of web pages that may call inference with this tenant's keys. */
export type AllowedOriginsRequest = {
    /** @description Like https://app.example.org, without a path. None by default. */
    origins: string[];
};
/** @description An item of an evaluation set; answers are null where only probabilities were requested. */
export type AnsweredItem = {
    base: string | null;
    expected: string;
    /** @description Of the set, from 1. */
    line: number;
    live: string | null;
    /** @description Its end, if it is long. */
    prompt: string;
    /**
     * Format: double
     * @description Of the version.
     */
    score: number;
    version: string | null;
};
/** @enum {string} */
export type ApiEndpoint = "chat.completions" | "completions" | "embeddings";
export type ApiKey = {
    /** Format: date-time */
    created_at: string;
    created_by?: string | null;
    /** Format: date-time */
    expires_at: string | null;
    /** Format: uuid */
    id: string;
    /** Format: date-time */
    last_used_at: string | null;
    name: string;
    /** @description Public part of the key: `lk_<prefix>_...`. */
    prefix: string;
    /**
     * Format: date-time
     * @description Until when the secret before the last rotation is accepted.
     */
    previous_until: string | null;
    /** Format: date-time */
    revoked_at: string | null;
    /** Format: date-time */
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
    /** Format: date-time */
    last_used_at: string | null;
};
export type ApprovedBaseModelRequest = {
    /** @description The base model that this host serves at the moment. */
    host: string;
    /** @description What callers put into `model`; else the engine's name for it, or that by which it was served. */
    name?: string;
};
export type AppSetup = {
    /** @description Rows of the QR code: 1 is a dark module. */
    qr: string[];
    /** @description In base32, to type into an app that cannot scan. */
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
     * @description met / measured.
     */
    attainment: number | null;
    budget: ErrorBudget | null;
    burn: BurnRate[];
    by_day: AttainmentDay[];
    measured: number;
    met: number | null;
    objective_ms: number | null;
    percentiles: Percentiles;
};
export type AttainmentDay = {
    /** Format: double */
    attainment: number | null;
    /**
     * Format: date
     * @description UTC.
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
    /** @description "noun.verb". */
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
    tenant?: string | null;
};
export type AuditPage = {
    events: AuditEvent[];
    /** @description Pass it as `before` for older rows. */
    next: number | null;
};
export type AuditTarget = {
    id: string;
    kind: string;
    label: string;
};
/** @description A base model that the installation serves. */
export type BaseModel = {
    /** @description Digests of base models whose adapters it serves too. */
    adapters_of: string[];
    /** Format: date-time */
    decided_at: string;
    decided_by: string;
    digest: string;
    name: string;
    /** @description Without a request for so long it needs no host; 0 = never. */
    sleeps_after_s: number;
};
/** @enum {string} */
export type BaseModelState = "served" | "waiting" | "withdrawn";
export type BaseModelUsage = {
    /** @description By its name now; null of requests of before it was written down. */
    base_model: string | null;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** @description Share of the devices' time, in microseconds. */
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
    error_file: StoredFile | null;
    /**
     * Format: date-time
     * @description Requests that have not run by this time are not run.
     */
    expires_at: string;
    /** @description The batch's id in /v1/batches. */
    id: string;
    /** @description Null if the file was deleted. */
    input_file: StoredFile | null;
    /** @description Name of the API key whose requests these are. */
    key: string;
    output_file: StoredFile | null;
    state: BatchState;
};
/** @enum {string} */
export type BatchEndpoint = "/v1/chat/completions" | "/v1/completions" | "/v1/embeddings";
/** @enum {string} */
export type BatchState = "validating" | "in_progress" | "finalizing" | "completed" | "failed" | "expired" | "cancelling" | "cancelled";
/** @description The credentials for a bucket. The keys are never shown. */
export type BucketCredentials = {
    /** @description Its name. What was kept for it before is replaced. */
    bucket: string;
    /** Format: date-time */
    readonly created_at: string;
    /**
     * @description Empty for Amazon S3.
     * @default
     */
    endpoint: string;
    /** @default us-east-1 */
    region: string;
};
/** @description The credentials for a bucket. The keys are never shown. */
export type BucketCredentialsRequest = {
    access_key_id: string;
    /** @description Its name. What was kept for it before is replaced. */
    bucket: string;
    /** @description Empty for Amazon S3. */
    endpoint?: string;
    /** @description By default us-east-1. */
    region?: string;
    secret_access_key: string;
    /** @description Of temporary credentials, which end by themselves; empty for others. */
    session_token?: string;
};
export type BudgetReport = {
    /** @description Null: there are no prices, so no budget can be set. */
    currency: string | null;
    /** @description By the operator. */
    granted: BudgetStates;
    /** @description Of the keys that have one, the 50 with the least left. */
    keys: KeyBudgets[];
    /** @description Keys that have one. */
    keys_total: number;
    /** @description By the tenant itself; all hold. */
    own: BudgetStates;
};
export type BudgetRequest = {
    /** @description Per cent of the amount at which webhooks and the console tell. */
    alerts?: number[];
    /**
     * Format: int64
     * @description Millionths of the currency of the price list.
     */
    amount_micros: number;
    /** @description refuse: 402 `budget_exceeded`; warn: only tell. */
    at_limit?: AtLimitEnum;
};
/** @description The budgets of a day and a month. One that is left out or null is lifted. */
export type BudgetsRequest = {
    day?: BudgetRequest | null;
    month?: BudgetRequest | null;
};
export type BudgetState = {
    /** @description Per cent of the amount at which webhooks and the console tell. */
    alerts?: number[];
    /**
     * Format: int64
     * @description Millionths of the currency of the price list.
     */
    amount_micros: number;
    /**
     * @description refuse: 402 `budget_exceeded`; warn: only tell.
     * @default refuse
     */
    at_limit: AtLimitEnum;
    /** @description The highest threshold that is passed, in per cent. */
    reached: number | null;
    /** @description By the ledger; what runs is not in it. */
    spent_micros: number;
};
export type BudgetStates = {
    day: BudgetState | null;
    month: BudgetState | null;
};
export type BurnRate = {
    measured: number;
    missed: number | null;
    /**
     * Format: double
     * @description Misses / those that the target allows: 1 uses the budget up exactly.
     */
    rate: number | null;
    /** @description 1h, 6h, 1d, 7d before now. */
    window: string;
};
/** @enum {string} */
export type Cadence = "week" | "month";
/** @description The figures of a canary and of the alias's regular version; null without a canary. */
export type CanaryComparison = {
    canary: VersionStats | null;
    /** @description Requests of each version below which nothing is judged. */
    least_requests: number;
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
    /** @description Of the alias's requests. */
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
    /** @description For requests with tools, if that is another. */
    tool_source: string;
};
export type CodeRequest = {
    /** @description A code of the authenticator app. */
    code: string;
};
/** @description Milliseconds; null while the host has not done such a load since it started. */
export type ColdStarts = {
    /** Format: double */
    device: number | null;
    /** Format: double */
    disk: number | null;
    /** Format: double */
    host: number | null;
    /** Format: double */
    store: number | null;
};
export type CreatedApiKey = {
    /** Format: date-time */
    created_at: string;
    created_by?: string | null;
    /** Format: date-time */
    expires_at: string | null;
    /** Format: uuid */
    id: string;
    /** Format: date-time */
    last_used_at: string | null;
    name: string;
    /** @description Public part of the key: `lk_<prefix>_...`. */
    prefix: string;
    /**
     * Format: date-time
     * @description Until when the secret before the last rotation is accepted.
     */
    previous_until: string | null;
    /** Format: date-time */
    revoked_at: string | null;
    /** Format: date-time */
    rotated_at: string | null;
    scopes: KeyScope[];
    /** @description The whole key. It is shown this once and kept nowhere. */
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
    invited_by?: string | null;
    /** @description For the invited person alone. It is shown this once. */
    link: string;
    /** @description Whether the link is mailed to them. Without a mail server it is not: pass it on yourself. */
    mailed: boolean;
    role: Role;
};
export type CreatedJoinToken = {
    /** Format: date-time */
    created_at: string;
    created_by: string;
    /** Format: date-time */
    expires_at: string;
    /** @description Empty: any new name. */
    host: string;
    /** Format: uuid */
    id: string;
    /** @description What to give to `--join`. */
    join_url: string;
    readonly state: string;
    /** @description Shown this once. */
    token: string;
    /** @description The host that joined with it. */
    used_by?: string | null;
};
export type CreatedTenant = {
    /** Format: date-time */
    created_at: string;
    /** Format: date-time */
    deleted_at: string | null;
    /** @description The owner's invitation. It is shown this once. */
    link: string;
    /** @description Whether it is mailed to them, which needs a mail server. */
    mailed: boolean;
    name: string;
    slug: string;
    state: TenantState;
    /** Format: date-time */
    suspended_at: string | null;
    suspended_for: string;
    /** Format: double */
    weight: number;
};
export type DayUsage = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /**
     * Format: date
     * @description UTC.
     */
    date: string;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    prompt_tokens: number;
    requests: number;
};
export type Delivery = {
    attempts: number;
    /** Format: date-time */
    created_at: string;
    /** Format: date-time */
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
    status: number | null;
};
/** @enum {string} */
export type DeliveryState = "pending" | "delivered" | "failed";
/** @description A session of the calling person. Its key is never sent. */
export type Device = {
    /** @description Where it was last used from; empty for one from before this was kept. */
    address: string;
    /** Format: date-time */
    created_at: string;
    /** @description The one that asks. */
    current: boolean;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description To five minutes.
     */
    last_seen_at: string;
    /** @description As the browser says it. */
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
     * @description Of log-probabilities, in nats.
     */
    mean_distance: number;
    /**
     * Format: double
     * @description The largest mean distance with which FP8 is served.
     */
    most_distance: number;
    outcome: AgreementOutcome;
    /** @description Why it is not served in FP8 with `auto`, or was not measured. */
    reason: string;
    /** @description Number of tokens of prompts and answers that were compared. */
    tokens: number;
};
export type EndPricesRequest = {
    /** @description Of the base model whose own prices end. */
    base_model_digest: string;
    /**
     * Format: date
     * @description From midnight UTC on the installation's list counts for it.
     */
    effective_on: string;
};
export type ErrorBudget = {
    /**
     * Format: double
     * @description Requests that may miss the objective.
     */
    allowed: number;
    /**
     * Format: double
     * @description Share of the budget; below 0 it is overdrawn.
     */
    left: number | null;
    missed: number;
};
export type Evaluation = {
    adapter: string;
    /** @description That runs them; null before it began. */
    readonly batch: string | null;
    /** Format: date-time */
    created_at: string;
    /** Format: date-time */
    ended_at: string | null;
    /** Format: uuid */
    id: string;
    /** @description Whose requests they are. */
    key: string;
    /** @description Why it waits or failed. */
    problem: Problem | null;
    score: Score | null;
    set: string;
    state: EvaluationState;
    /** Format: uuid */
    upload: string | null;
    /** @description Null until its upload has become one. */
    version?: number | null;
};
/** @enum {string} */
export type EvaluationMetric = "exact" | "contains" | "logprob";
export type EvaluationSet = {
    /** Format: date-time */
    created_at: string;
    items: number;
    /** @description Of an answer. */
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
    /** @description Where the single requests of archived months are; else empty. */
    readonly note: string;
    /** Format: date-time */
    ready_at: string | null;
    /** @description Made by a schedule. */
    scheduled: boolean;
    state: ExportState;
};
export type ExportSchedule = {
    cadence: Cadence;
    /** Format: date-time */
    created_at: string;
    created_by?: string | null;
    grain: Grain;
    /** Format: uuid */
    id: string;
};
/** @enum {string} */
export type ExportState = "queued" | "running" | "ready" | "failed";
export type Fairness = {
    /** @description Those on which two tenants waited in this time. */
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
    /** @description The tenant or a key has a limit or a budget. */
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
    /** @description `adapters` shows at most 256, the busiest first. */
    adapters_total: number;
    boot_id: string;
    device: string;
    experts: ResidentExperts | null;
    /** Format: date-time */
    last_seen: string | null;
    load_times?: LoadTime[];
    model: string;
    name: string;
    /** @description One page over all layers. */
    page_bytes: number;
    pool: Pool;
    /** @description Why it gets neither adapters nor requests; null if it does. */
    quarantine: Quarantine | null;
    restart?: RestartState | null;
    running: number;
    /** @description What operators want of it. Cordoned and drained hosts get nothing new. */
    service: HostService;
    /** @description The tenant's own; null while it has nothing there. */
    share?: Share | null;
    state: HostState;
    /** Format: double */
    tokens_per_second: number;
    waiting: number;
};
export type HostFairness = {
    name: string;
    now: ServiceGap | null;
    points: ServiceGapPoint[];
};
/** @description A map of a host's pool: the owner of each page. */
export type HostPages = {
    /**
     * Format: double
     * @description Seconds since 1970.
     */
    at: number;
    boot_id: string;
    /** @description From when there are others, for ten minutes: seconds since 1970. */
    kept: number[];
    owners: PageOwner[];
    page_bytes: number;
    /** @description In turn: an index into `owners`, and how many pages in a row are its. */
    runs: number[];
    total: number;
};
export type HostPin = {
    bytes: number;
    host: string;
    /** @description Whether the host keeps it loaded now. */
    pinned: boolean;
};
export type HostPrefix = {
    /** @description Of its device memory. */
    bytes: number;
    /** @description With `failed`. */
    error: Problem | null;
    host: string;
    /** @description `computing`: or waiting for requests to leave it time and room. `no_room`, `over_quota`: older pins take all that a host, or the tenant, may. `off`: the host keeps no prefixes. `waiting`: it was not told yet. */
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
    /** Format: date-time */
    readonly checked_at: string | null;
    /** @description That was imported last; empty before the first look. */
    readonly commit: string;
    /** Format: date-time */
    readonly created_at: string;
    /** Format: uuid */
    readonly id: string;
    /** @description The adapter. */
    name: string;
    /** @description Why the last look failed. */
    readonly problem: Problem | null;
    /** @description hub:org/name@branch or hub:org/name/folder@branch */
    source: string;
};
/** @description A branch: whenever it moves, the adapter gets a new version. */
export type HubFollowRequest = {
    /** @description The adapter. */
    name: string;
    /** @description hub:org/name@branch or hub:org/name/folder@branch */
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
    version?: number | null;
};
/** @description The permission for requests to name repositories of the Hub as their model. */
export type HubModels = {
    enabled: boolean;
    /** @description The latest. */
    readonly models: HubModel[];
    /** @description Only of these; empty = of all. */
    organizations?: string[];
};
/** @description The permission for requests to name repositories of the Hub as their model. */
export type HubModelsRequest = {
    enabled: boolean;
    /** @description Only of these; empty = of all. */
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
    invited_by?: string | null;
    role: Role;
};
/** @description An invitation as its recipient sees it before accepting. */
export type InvitationDetails = {
    /** Format: email */
    email: string;
    /** Format: date-time */
    expires_at: string;
    /** @description Whether to sign in first, instead of choosing a password. */
    has_account: boolean;
    invited_by?: string | null;
    role: Role;
    tenant: string;
    tenant_name: string;
};
export type InvitationTokenRequest = {
    token: string;
};
export type Joined = {
    /** @description PEM: who certifies the control plane. */
    authority: string;
    /** @description PEM. */
    certificate: string;
    /** Format: date-time */
    expires_at: string;
    name: string;
};
/** @description The membership of a host that joined, with a credential of its own. */
export type JoinedHost = {
    /** Format: date-time */
    at: string;
    /** Format: date-time */
    certificate_expires_at: string | null;
    /** Format: date-time */
    revoked_at: string | null;
};
export type JoinRequest = {
    /** @description Where the control plane reaches the engine: host:port. */
    address: string;
    /** @description PKCS #10, PEM, of a key of P-256. */
    certificate_request: string;
    name: string;
    token: string;
    /** @description The version of the protocol between the control plane and engines that the engine speaks. By default 0. */
    wire_version?: number;
};
export type JoinToken = {
    /** Format: date-time */
    created_at: string;
    created_by: string;
    /** Format: date-time */
    expires_at: string;
    /** @description Empty: any new name. */
    host: string;
    /** Format: uuid */
    id: string;
    readonly state: string;
    /** @description The host that joined with it. */
    used_by?: string | null;
};
export type KeyBudgets = {
    day: BudgetState | null;
    /** Format: uuid */
    id: string;
    month: BudgetState | null;
    name: string;
    prefix: string;
};
/** @description The limits of one key. The tenant's limits apply as well. */
export type KeyLimits = {
    /**
     * Format: int64
     * @description Choices that run at once, n for each prompt of a request. Null = no limit.
     */
    concurrency?: number | null;
    /**
     * Format: int64
     * @description Of one request, for each choice. Null = no limit.
     */
    max_output_tokens?: number | null;
    /**
     * Format: int64
     * @description Within any 60 seconds. Null = no limit.
     */
    requests_per_minute?: number | null;
    /**
     * Format: int64
     * @description By UTC day. Null = no limit.
     */
    tokens_per_day?: number | null;
    /**
     * Format: int64
     * @description Prompt and output, within any 60 seconds. Null = no limit.
     */
    tokens_per_minute?: number | null;
    /**
     * Format: int64
     * @description By UTC month. Null = no limit.
     */
    tokens_per_month?: number | null;
};
/** @description The limits of one key. The tenant's limits apply as well. */
export type KeyLimitsRequest = {
    /**
     * Format: int64
     * @description Choices that run at once, n for each prompt of a request. Null = no limit.
     */
    concurrency?: number | null;
    /**
     * Format: int64
     * @description Of one request, for each choice. Null = no limit.
     */
    max_output_tokens?: number | null;
    /**
     * Format: int64
     * @description Within any 60 seconds. Null = no limit.
     */
    requests_per_minute?: number | null;
    /**
     * Format: int64
     * @description By UTC day. Null = no limit.
     */
    tokens_per_day?: number | null;
    /**
     * Format: int64
     * @description Prompt and output, within any 60 seconds. Null = no limit.
     */
    tokens_per_minute?: number | null;
    /**
     * Format: int64
     * @description By UTC month. Null = no limit.
     */
    tokens_per_month?: number | null;
};
/** @description The current usage. Null means not counted: nothing limits it, or the counters cannot be reached. */
export type KeyLimitUsage = {
    concurrency: number | null;
    requests_per_minute: number | null;
    tokens_per_day: number;
    /** @description Running requests count with all they may use. */
    tokens_per_minute: number | null;
    tokens_per_month: number;
};
/** @enum {string} */
export type KeyScope = "adapters.write" | "infer" | "view";
export type KeyUsage = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    /** @description Null = members in the console. */
    key: string | null;
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
     * @description Null where nobody knows.
     */
    at: string | null;
    reason: string;
};
export type Latency = {
    first_token: Percentiles;
    inter_token: Percentiles;
};
export type LatencyObjectives = {
    /** @description Time to the first token. Null = no objective. */
    first_token_ms?: number | null;
    /** @description Time between tokens, the mean of a request. Null = no objective. */
    inter_token_ms?: number | null;
    /**
     * Format: double
     * @description Share of requests that should meet each.
     * @default 0.99
     */
    target: number;
};
export type LatencyObjectivesRequest = {
    /** @description Time to the first token. Null = no objective. */
    first_token_ms?: number | null;
    /** @description Time between tokens, the mean of a request. Null = no objective. */
    inter_token_ms?: number | null;
    /**
     * Format: double
     * @description Share of requests that should meet each. By default 0.99.
     */
    target?: number;
};
export type LineError = {
    code: string;
    /** @description Line number in the file, from 1; 0 = the file as a whole. */
    line: number;
    message: string;
    param: string | null;
};
/** @description A base model that is served, was, or could be. */
export type ListedBaseModel = {
    /** @description Of all tenants, with versions in use. */
    adapters: number;
    /** Format: date-time */
    decided_at: string | null;
    decided_by: string | null;
    digest: string;
    /** @description Active hosts that have it. */
    hosts: string[];
    /** @description Those that take its requests now. */
    hosts_online: number;
    /** @description Tokens; the least of its hosts. */
    max_context: number | null;
    /** @description What callers put into `model`. */
    name: string;
    /** @description Without a request for so long it needs no host; 0 = never. */
    sleeps_after_s: number;
    /** @description `waiting`: hosts serve it, and no operator has approved it. */
    state: BaseModelState;
    /** @description Whether it is to have a host now. */
    wanted: boolean;
    /** Format: date-time */
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
    bytes_per_second: number | null;
    /** Format: double */
    fixed_ms: number;
    /** @description Since the engine started; 0 = not known. */
    loads: number;
    /** @description `to_device` from host memory, `from_disk` to host memory, `download` from the artifact store. */
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
    /** @description Whether they sign in with a second factor. */
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
    adapter: string | null;
    /** @description Further ids of the same adapter. */
    aliases: string[];
    /** @description On which it runs; itself for a base model. */
    base_model?: string | null;
    /** Format: date-time */
    created_at: string;
    description: string;
    id: string;
    kind: ModelKind;
    version: number | null;
};
/** @enum {string} */
export type ModelKind = "base" | "adapter";
export type NewApiKeyRequest = {
    /** Format: date-time */
    expires_at?: string | null;
    name: string;
    /** @description Any of adapters.write, infer, view; all of them if left out. */
    scopes?: string[];
};
export type NewBaseModelRequest = {
    /** @description The base model that this host serves at the moment. */
    host: string;
    /** @description Adapters of the base model so far are right for this one: the same, saved anew. By default false. */
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
     * @description The API key whose requests they are; for a key: always itself.
     */
    key?: string;
    set: string;
    /**
     * Format: uuid
     * @description Instead of adapter and version.
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
    /** @description Of an answer; none for logprob. By default 64. */
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
    /** @description The adapter; made if there is none. */
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
    /** @description Seconds for which it can be used. By default 3600. */
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
    /** @description Of the requests, if they have one. */
    cache_salt?: string;
    /** @description Of the requests, as in a chat. */
    chat_template_kwargs?: {
        [key: string]: unknown;
    };
    messages?: PrefixMessageRequest[];
    /** @description An adapter's name, and so what is live, or a base model. */
    model: string;
    name: string;
    prompt?: string;
    /** @description Of the requests. */
    reasoning_effort?: ReasoningEffortEnum;
    /** @description Of the requests, as in a chat. */
    tools?: {
        [key: string]: unknown;
    }[];
};
export type NewPricesRequest = {
    /** @description Of the base model that is to have this list of its own; null = the installation's list. */
    base_model_digest?: string | null;
    batch_cached_input_per_million?: number | null;
    /** @description Of batches; null = as of other requests. */
    batch_input_per_million?: number | null;
    batch_output_per_million?: number | null;
    /** @description Of those that were found in the prefix cache. */
    cached_input_per_million: number;
    /** @description ISO 4217, like USD. */
    currency: string;
    /**
     * Format: date
     * @description From midnight UTC on.
     */
    effective_on: string;
    /** @description Millionths of the currency for a million prompt tokens. */
    input_per_million: number;
    output_per_million: number;
    /** @description Of the installation's list, and only of that. */
    storage_per_gb_month?: number | null;
};
export type NewPromotionRuleRequest = {
    /**
     * Format: uuid
     * @description Whose requests evaluations are; for a key: always itself.
     */
    key?: string;
    /**
     * Format: double
     * @description Of the score.
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
     * @description Is invited as the first owner.
     */
    owner: string;
    /** @description In addresses; it never changes. */
    slug: string;
};
/** @description The multipart form of a new upload. */
export type NewUploadRequest = {
    /** @description Name or digest of the base model that it was trained for. Needed only where several are served, the adapter is new, and its configuration names none of them. */
    base_model?: string;
    description?: string;
    /** @description adapter_config.json and adapter_model.safetensors, or one .zip or .tar.gz that holds them. */
    files: string[];
    /** @description The adapter; made if there is none. */
    name: string;
    /** @description What `sha256sum` prints of the files: an upload that arrived otherwise is refused. */
    sha256?: string;
};
/** @enum {unknown} */
export type NullEnum = null;
/** @description An engine host by its last heartbeat, with every tenant's adapters. */
export type OperatorHost = {
    /** @description Other hosts that read an adapter from this one now. */
    adapter_readers: number;
    adapters: OperatorResidentAdapter[];
    /** @description `adapters` shows at most 256, the busiest first. */
    adapters_total: number;
    address: string;
    base_digest: string;
    boot_id: string;
    /**
     * Format: double
     * @description How far its clock is ahead of the database's; negative: behind; null while it does not answer.
     */
    clock_ahead_s?: number | null;
    device: string;
    /** @description The release of its engine, and the commit of the build. */
    engine_version?: string;
    experts: ResidentExperts | null;
    /** @description Null of a host of the settings. */
    joined: JoinedHost | null;
    /** @description Why the engine before the one that runs ended; null if that was as it should be. */
    last_end?: LastEnd | null;
    /** Format: date-time */
    last_seen: string | null;
    load_times?: LoadTime[];
    model: string;
    name: string;
    /** @description Versions that can be called on no other serving host. */
    only_here: number;
    /** @description One page over all layers. */
    page_bytes: number;
    pool: Pool;
    /** @description Why it gets neither adapters nor requests; null if it does. */
    quarantine: Quarantine | null;
    restart?: RestartState | null;
    running: number;
    /** @description What operators want of it. Cordoned and drained hosts get nothing new. */
    service: HostService;
    /** @description The 100 tenants with the longest queues. */
    shares?: TenantShare[];
    state: HostState;
    /** Format: double */
    tokens_per_second: number;
    waiting: number;
    /** @description Where it says that it is (`--zone`). */
    zone: string;
};
export type OperatorReport = {
    /** Format: date-time */
    as_of: string | null;
    by_base_model: BaseModelUsage[];
    by_day: DayUsage[];
    /** @description Those with most device time, at most a hundred. */
    by_tenant: TenantUsage[];
    currency: string | null;
    /** Format: date */
    first: string;
    /** Format: date */
    last: string;
    latency: Latency;
    /** @description Of one base model: only those that an engine had. */
    outcomes: OutcomeCounts;
    /** @description How many used anything. */
    tenants: number;
    top_adapters: TopAdapter[];
    totals: UsageTotals;
};
export type OperatorResidentAdapter = {
    bytes: number;
    /**
     * Format: double
     * @description How long a request would wait for it beside the queue, by what loads took here; null = not known.
     */
    cold_start_ms?: number | null;
    digest: string;
    /** @description null: it has no experts, is not on the device, or the host keeps all experts in its page pool. */
    experts: AdapterExperts | null;
    rank: number;
    /** @description Requests using it now. */
    running: number;
    tier: AdapterTier;
    /** @description Versions with this content; none if the host has yet to forget it. */
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
    /** @description Every name of the adapter. */
    adapters: string[];
    /**
     * Format: double
     * @description Since the request came in, or the adapter was last used.
     */
    age_s: number | null;
    /** @description `others`: of another tenant. */
    kind: PageKind;
    /** @description A pinned adapter's, or a pinned prefix's: it is not evicted. */
    pinned: boolean;
    /** @description For operators. */
    tenant: string | null;
};
export type Passkey = {
    /** Format: date-time */
    created_at: string;
    /** Format: uuid */
    id: string;
    /** Format: date-time */
    last_used_at: string | null;
    name: string;
};
/** @description A change of a base model: fields that are left out stay. */
export type PatchedBaseModelChangeRequest = {
    name?: string;
    /** @description Without a request for so many seconds (60 or more) it needs no host; 0 = never. */
    sleeps_after_s?: number;
};
/** @description Changes of a key; a field that is left out keeps its value. */
export type PatchedChangeApiKeyRequest = {
    /** Format: date-time */
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
    /** Format: double */
    p50_ms: number | null;
    /** Format: double */
    p95_ms: number | null;
    /** Format: double */
    p99_ms: number | null;
};
/** @description The pin of an adapter's live version in the device memory of its hosts, and its size. */
export type Pin = {
    /** @description Of each host's device memory; null: nothing is live. */
    bytes: number | null;
    /** @description Those that have the live version. */
    hosts: HostPin[];
    /** @description What that may take; null or 0 = nothing may. */
    limit_bytes: number | null;
    /**
     * Format: date-time
     * @description Null = it is not pinned.
     */
    pinned_at: string | null;
    /** @description Of all that the tenant has pinned, on the host where it is most. */
    used_bytes: number;
};
export type PinnedAdapter = {
    /** @description Of each host's device memory; 0 = no host has a live version. */
    bytes: number;
    name: string;
    /** Format: date-time */
    pinned_at: string;
};
export type Placement = {
    attempts: number;
    bytes_done: number;
    bytes_total: number;
    /** @description In which the host serves it, such as fp8 or bfloat16; empty until it has said so. */
    dtype: string;
    dtype_report: DtypeReport | null;
    error: Problem | null;
    host: string;
    phase: StagingPhase;
    /** Format: date-time */
    updated_at: string;
};
/** @description Pages; ``free + kv + state + cached_prefix + adapter + reserved == total``. */
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
    /** @description Since an engine had the request. */
    at_ms: number;
    /** @description Until it ran again. */
    ms: number;
};
/** @description A pinned prefix, and what the hosts that answer for its model do with it. */
export type Prefix = {
    /** @description Of each host's device memory, where it is most. */
    bytes: number;
    cache_salt: string;
    /** @description None: nothing is live, or no host has it. */
    hosts: HostPrefix[];
    /** @description Empty: a base model that is not served any more. */
    model: string;
    name: string;
    /** Format: date-time */
    pinned_at: string;
    /** @description That all longer prompts have; full pages of them are kept. */
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
    /** @description Of each host's device memory, where it is most. */
    bytes: number;
    cache_salt: string;
    content: PrefixContent;
    /** @description None: nothing is live, or no host has it. */
    hosts: HostPrefix[];
    /** @description Empty: a base model that is not served any more. */
    model: string;
    name: string;
    /** Format: date-time */
    pinned_at: string;
    /** @description That all longer prompts have; full pages of them are kept. */
    tokens: number;
};
/**
 * @description A version of one list. Of requests the base model's own list counts, if it has one on their day, or else the
 *     installation's.
 */
export type PriceVersion = {
    /** @description Whose list it is, by its name now; null = the installation's. */
    base_model?: string | null;
    base_model_digest?: string | null;
    batch_cached_input_per_million?: number | null;
    /** @description Of batches; null = as of other requests. */
    batch_input_per_million?: number | null;
    batch_output_per_million?: number | null;
    cached_input_per_million: number;
    /** Format: date-time */
    created_at: string;
    created_by?: string | null;
    currency: string;
    /**
     * Format: date
     * @description From midnight UTC on.
     */
    effective_on: string;
    /** @description The base model has no list of its own from this day on; every amount is 0. */
    inherits: boolean;
    input_per_million: number;
    number: number;
    output_per_million: number;
    /** @description Null in a base model's list. */
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
    /** @description Shown to other members. */
    name: string;
};
/** @description The score that a version must reach before it becomes live, or a canary of it. */
export type PromotionRule = {
    /**
     * Format: uuid
     * @description The API key whose requests those are.
     */
    key: string;
    /** Format: double */
    minimum: number | null;
    not_worse_than_live: boolean;
    /** @description The evaluation set; new versions are evaluated with it by themselves. */
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
    /** @description However they ended, also those that no engine had. */
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
    /** @description Shown this once. Empty unless this was the first second factor. */
    recovery_codes: string[];
};
/** @description Refusals of one kind within one minute. */
export type Refusal = {
    code: string;
    count: number;
    endpoint: ApiEndpoint;
    id: number;
    /** @description Null = the console. */
    key?: string | null;
    /** Format: date-time */
    last_at: string;
    /** @description Which limit, if it was one. */
    limit: string;
    /** Format: date-time */
    minute: string;
    /** @description Asked for by the last of them. */
    model: string;
    /** @description At fault in the last of them. */
    param: string;
    /** @description Of HTTP. */
    status: number;
};
export type RefusalPage = {
    /** @description `cursor` of the next page; null at the end. */
    next_cursor: string | null;
    results: Refusal[];
};
export type RefusalsByCode = {
    by_step: number[];
    /** @description `others`: what is beyond the 20 most frequent. */
    code: string;
    count: number;
    /** @description Of HTTP; 0 of `others`. */
    status: number;
};
/** @description Requests that reached no engine, over time. They are a few seconds late. */
export type RefusalSeries = {
    by_code: RefusalsByCode[];
    /** @description Of these, the ones that were the platform's fault: 5xx. */
    failed: number;
    /** Format: date-time */
    since: string;
    /** @description When each step begins. */
    starts: string[];
    step_s: number;
    total: number;
    /**
     * Format: date-time
     * @description Everything before it is counted; the last step may not be over.
     */
    until: string;
};
export type RequestCounts = {
    completed: number;
    failed: number;
    /** @description 0 until every line has been checked. */
    total: number;
};
export type RequestPage = {
    /**
     * Format: date
     * @description On the last page: requests of months before this day are archived; reports and exports still count them. Null if none are.
     */
    archived_before?: string | null;
    /** @description `cursor` of the next page; null at the end. */
    next_cursor: string | null;
    results: RequestRecord[];
};
/** @description A request of the ledger. Neither prompt nor output is kept. */
export type RequestRecord = {
    /** @description Completion tokens that were drafted, each of which saved a step. */
    accepted_tokens: number;
    adapter?: string | null;
    adapter_load_ms: number;
    /** @description The tier that its adapter was loaded from meanwhile: "disk" or "host". */
    adapter_loaded_from: string;
    /** @description Finding the key, the adapter and its hosts. */
    auth_ms: number;
    /** @description On which it ran, by its name now; null of several adapters as one, of before it was written down. */
    readonly base_model: string | null;
    /** @description A line of a batch. */
    batch: boolean;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency; null = no prices. */
    cost_micros: number | null;
    /** Format: date-time */
    created_at: string;
    currency: string | null;
    decode_ms: number;
    /** @description Drafts of speculation that were computed; no tokens of the answer, never billed. */
    drafted_tokens: number;
    endpoint: ApiEndpoint;
    error_code: string;
    /** @description Of its choices, by commas: "stop", "length", "tool_calls"; empty if unknown. */
    finish_reason: string;
    first_token_ms: number;
    host: string;
    id: string;
    /** @description The first 16 fields of the request that were left out, as in its header X-Lorikeet-Ignored. */
    readonly ignored: string[];
    /** @description Null = the console. */
    key?: string | null;
    /** @description As the client wrote it. */
    model: string;
    outcome: Outcome;
    /** @description How long it was out of the batch, over all its choices. */
    preempted_ms: number;
    /** @description The first 16. */
    readonly preemption_spans: PreemptionSpan[];
    /** @description How often it was taken out of the batch for others. */
    preemptions: number;
    prefill_ms: number;
    prompt_tokens: number;
    queue_ms: number;
    /** @description Checking limits and budgets. */
    quota_ms: number;
    /** @description The first 8 keywords of the request's schema that the answer violates, by their paths. */
    readonly schema_violations: string[];
    streamed: boolean;
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
     * @description How long a request would wait for it beside the queue, by what loads took here; null = not known.
     */
    cold_start_ms?: number | null;
    digest: string;
    /** @description null: it has no experts, is not on the device, or the host keeps all experts in its page pool. */
    experts: AdapterExperts | null;
    /** @description The newest of `names`. */
    name: string;
    /** @description Every version with this content. */
    names?: string[];
    rank: number;
    /** @description Requests using it now. */
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
     * @description So long requests that run there may go on. Asked again, the last word holds.
     * @default 300
     */
    wait_s: number;
};
/** @enum {string} */
export type RestartPhase = "asked" | "ending" | "starting";
export type RestartRequest = {
    /** @description So long requests that run there may go on. Asked again, the last word holds. By default 300. */
    wait_s?: number;
};
/** @description A restart that operators asked for and that is not done. */
export type RestartState = {
    /** Format: date-time */
    asked_at: string;
    /** @description `asked`: its engine was not told yet. `ending`: it waits for its requests. `starting`: it ended. */
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
    /** @description Null where nothing was live, or this version. */
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
    /** @description The authenticator app, if one is set up. */
    app: App | null;
    /** @description Whether changes are accepted without POST /api/session/confirmation first. */
    confirmed: boolean;
    passkeys: Passkey[];
    /** @description False where browsers offer no passkeys: without a host name or HTTPS. */
    passkeys_available: boolean;
    /** @description Unused recovery codes. */
    recovery_codes_left: number;
    /** @description Names of the person's tenants that require a second factor. */
    required_by: string[];
};
export type Security = {
    /** @description Members that have no second factor. */
    members_without: number;
    /** @description Members without a second factor can do nothing but set one up. API keys are not affected. */
    second_factor_required: boolean;
};
export type SeriesPart = {
    /** @description Completion tokens that were drafted, each of which saved a step. */
    accepted_tokens: number;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    /** @description Of the ten parts with most device time; empty for others, and for adapters. */
    device_us_by_step: number[];
    /** @description Drafts of speculation that were computed; no tokens of the answer, never billed. */
    drafted_tokens: number;
    /** @description Of answered requests, without batches. */
    latency: Latency;
    /** Format: double */
    mean_adapter_load_ms: number | null;
    /** Format: double */
    mean_queue_ms: number | null;
    /** @description Null = the base model, or members in the console. */
    name?: string | null;
    outcomes: Outcomes;
    /** @description Of a key. */
    prefix?: string | null;
    prompt_tokens: number;
    requests: number;
    /** @description Of the ten parts with most device time; empty for others, and for adapters. */
    requests_by_step: number[];
    tenant?: string | null;
    version?: number | null;
    /**
     * Format: double
     * @description Of a tenant, as it is now.
     */
    weight?: number;
};
export type SeriesPoint = {
    /** @description Completion tokens that were drafted, each of which saved a step. */
    accepted_tokens: number;
    /**
     * Format: date-time
     * @description Where the step begins; of the first and the last one only what lies in the window is counted.
     */
    at: string;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    /** @description Drafts of speculation that were computed; no tokens of the answer, never billed. */
    drafted_tokens: number;
    /** @description Of answered requests, without batches. */
    latency: Latency;
    /** Format: double */
    mean_adapter_load_ms: number | null;
    /** Format: double */
    mean_queue_ms: number | null;
    outcomes: Outcomes;
    prompt_tokens: number;
    requests: number;
};
/** @description A report over time. Minutes are kept for two days, hours for ninety. Each part lists at most a hundred rows. */
export type SeriesReport = {
    /** Format: date-time */
    as_of: string | null;
    /** @description Of a tenant; without latencies, which `adapter` asks for. */
    by_adapter: SeriesPart[];
    /** @description Null = requests of before it was written down; empty of an adapter. */
    by_base_model: SeriesPart[];
    /** @description Of a tenant, or of all. */
    by_host: SeriesPart[];
    /** @description Of a tenant; without latencies. */
    by_key: SeriesPart[];
    /** @description For operators. */
    by_tenant: SeriesPart[];
    /** @description Of an adapter. */
    by_version: SeriesPart[];
    currency: string | null;
    points: SeriesPoint[];
    /** Format: date-time */
    since: string;
    step_s: number;
    totals: SeriesTotals;
    /**
     * Format: date-time
     * @description Everything before it is counted; the last step may not be over.
     */
    until: string;
};
export type SeriesTotals = {
    /** @description Completion tokens that were drafted, each of which saved a step. */
    accepted_tokens: number;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    /** @description Drafts of speculation that were computed; no tokens of the answer, never billed. */
    drafted_tokens: number;
    /** @description Of answered requests, without batches. */
    latency: Latency;
    /** Format: double */
    mean_adapter_load_ms: number | null;
    /** Format: double */
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
    /** @description A tenant's slug. */
    ahead: string;
    behind: string;
    /**
     * Format: double
     * @description What the fair order keeps it below, over any time in which both wait.
     */
    bound: number;
    /**
     * Format: double
     * @description Priced tokens per weight that the one has had more than the other.
     */
    gap: number;
    /**
     * Format: double
     * @description gap / bound.
     */
    share: number;
};
export type ServiceGapPoint = {
    /**
     * Format: date-time
     * @description When the step begins.
     */
    at: string;
    /** @description The nearest to its bound, of all heartbeats; null = no two tenants waited. */
    widest: ServiceGap | null;
};
export type Session = {
    authenticated: boolean;
    /** @description Send as X-CSRFToken with every POST, PUT, PATCH and DELETE. */
    csrf_token: string;
    /** @description Whether one can sign in with a password here. */
    password_login: boolean;
    /** @description Name of the provider to sign in with, if any. */
    provider: string | null;
    /** @description Address of the person whose sign-in waits for its second factor, if any. */
    second_factor_for: string | null;
    /** @description Whether a mail server is set up, so that links reach people. */
    sends_mail: boolean;
    /** @description Why the last sign-in by provider failed. Told once. */
    sign_in_error: SignInError | null;
    tenants: SessionTenant[];
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
     * @description Time since which the tenant's keys are refused and its members can only read.
     */
    suspended_at: string | null;
    /** @description Why, as the operator wrote it. */
    suspended_for: string;
};
export type SessionUser = {
    /** Format: email */
    email: string;
    /** @description Else they come in by provider. */
    has_password: boolean;
    /** Format: uuid */
    id: string;
    is_operator: boolean;
    name: string;
    /** @description Whether they sign in with a second factor. */
    second_factor: boolean;
};
/** @description A tenant's share of an engine, as the engine last reported it. */
export type Share = {
    /**
     * Format: double
     * @description Its weight's share among the tenants in the engine now.
     */
    owed: number;
    /** @description Why its next request waits: `adapter_loading`, `no_room`, `background`, `tenant_cap`, `own_queue`, `own_quota`, `batch_full`, `queue`. */
    reason: string;
    /**
     * Format: double
     * @description Its share of the service of the last 10 to 20 seconds.
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
    /** Format: date-time */
    as_of: string | null;
    days: number;
    /** @description Requests that broke off or brought nothing. */
    failed: number;
    first_token: Attainment;
    /** @description Time to the first token. Null = no objective. */
    first_token_ms?: number | null;
    inter_token: Attainment;
    /** @description Time between tokens, the mean of a request. Null = no objective. */
    inter_token_ms?: number | null;
    /** Format: double */
    mean_queue_ms: number | null;
    requests: number;
    /**
     * Format: double
     * @description Share of requests that should meet each.
     * @default 0.99
     */
    target: number;
    /**
     * Format: double
     * @description Share of the hosts when they are full, beside other tenants' weights.
     */
    weight: number;
};
export type SocketTicket = {
    /** @description Seconds. */
    expires_in: number;
    /** @description Good once. */
    ticket: string;
};
export type StagingPage = {
    /** @description How many placements are in which. */
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
    /** @description Since it was queued. */
    attempts: number;
    bytes_done: number;
    /** @description 0 = not moving. */
    bytes_per_second: number;
    bytes_total: number;
    /** @description Of the last attempt that failed. */
    error: Problem | null;
    /** @description In a row, each after all attempts. */
    failures: number;
    host: string;
    /** Format: uuid */
    id: string;
    /** Format: date-time */
    next_attempt_at: string | null;
    phase: StagingPhase;
    /**
     * Format: double
     * @description At that rate; null = not moving.
     */
    remaining_s: number | null;
    tenant: string;
    /** Format: date-time */
    updated_at: string;
    version: number;
    /** @description Why nothing happens with it now; null if something does. */
    waits_for: (StagingWait | NullEnum) | null;
};
/** @enum {string} */
export type StagingWait = "slot" | "host_offline" | "host_cordoned" | "retry";
/** @description A statement of a month. Amounts are millionths of the currency. */
export type Statement = {
    /** Format: date-time */
    as_of: string | null;
    /** @description The month is over, and all its usage is in the sums. */
    complete: boolean;
    /** @description Null = there were no prices. */
    currency: string | null;
    lines: StatementLine[];
    month: string;
    total_micros: number;
};
export type StatementLine = {
    amount_micros: number;
    /** @description Which has these prices of its own, by its name now; null = all that have none. */
    base_model: string | null;
    /** Format: date */
    first: string;
    kind: StatementLineKind;
    /** Format: date */
    last: string;
    price_version: number;
    /** @description Tokens; for storage, bytes x hours. */
    quantity: number;
    /** @description For a million tokens; for storage, a month of 10^9 bytes. */
    unit_price_micros: number;
};
/** @enum {string} */
export type StatementLineKind = "input" | "cached_input" | "output" | "batch_input" | "batch_cached_input" | "batch_output" | "storage";
/** @description A tenant's storage. Content shared by several versions counts once, but for each adapter in the list. */
export type Storage = {
    /** @description How many there are. */
    adapter_count: number;
    /** @description Those that take most. */
    adapters: AdapterStorage[];
    /** @description Of versions that are archived and can be restored. */
    archived_bytes: number;
    /** @description Of versions in use: what counts against the limit. */
    bytes: number;
    limit_bytes: number | null;
};
export type StoredFile = {
    bytes: number;
    /** Format: date-time */
    created_at: string;
    /**
     * Format: date-time
     * @description The file is deleted at this time.
     */
    expires_at: string;
    /** @description The file's id in /v1/files. */
    id: string;
    name: string;
    purpose: FilePurpose;
};
export type SuspensionRequest = {
    /** @description Its members and callers are told. */
    reason: string;
};
export type Tenant = {
    /** Format: date-time */
    created_at: string;
    /** Format: date-time */
    deleted_at: string | null;
    name: string;
    slug: string;
    state: TenantState;
    /** Format: date-time */
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
    rank: number | null;
    state: (VersionState | NullEnum) | null;
    /** @description The newest. */
    version: number | null;
};
export type TenantAdapterPage = {
    results: TenantAdapter[];
    total: number;
};
export type TenantDetail = {
    /** @description That are not archived. */
    adapters: number;
    /** Format: date-time */
    created_at: string;
    /** Format: date-time */
    deleted_at: string | null;
    /** @description How many are open. */
    invitation_count: number;
    /** @description The newest that are open. */
    invitations: Invitation[];
    /** @description That are not revoked. */
    keys: number;
    members: number;
    name: string;
    objectives: LatencyObjectives;
    slug: string;
    state: TenantState;
    /** Format: date-time */
    suspended_at: string | null;
    suspended_for: string;
    usage: RecentUsage;
    /** @description How many are in which state. */
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
     * @description Adapters that are not archived. Null = no limit.
     */
    adapters?: number | null;
    /**
     * Format: int64
     * @description Choices that run at once, n for each prompt of a request. Null = no limit.
     */
    concurrency?: number | null;
    /**
     * Format: int64
     * @description Of one request, for each choice. Null = no limit.
     */
    max_output_tokens?: number | null;
    /**
     * Format: int64
     * @description Of an adapter's largest module. Null = no limit.
     */
    max_rank?: number | null;
    /**
     * Format: int64
     * @description Device memory of each host for pinned adapters. Null = none may be pinned.
     */
    pinned_bytes?: number | null;
    /**
     * Format: int64
     * @description Within any 60 seconds. Null = no limit.
     */
    requests_per_minute?: number | null;
    /**
     * Format: int64
     * @description Content of versions that are not archived. Null = no limit.
     */
    storage_bytes?: number | null;
    /**
     * Format: int64
     * @description By UTC day. Null = no limit.
     */
    tokens_per_day?: number | null;
    /**
     * Format: int64
     * @description Prompt and output, within any 60 seconds. Null = no limit.
     */
    tokens_per_minute?: number | null;
    /**
     * Format: int64
     * @description By UTC month. Null = no limit.
     */
    tokens_per_month?: number | null;
};
/** @description The limits of one key. The tenant's limits apply as well. */
export type TenantLimitsRequest = {
    /**
     * Format: int64
     * @description Adapters that are not archived. Null = no limit.
     */
    adapters?: number | null;
    /**
     * Format: int64
     * @description Choices that run at once, n for each prompt of a request. Null = no limit.
     */
    concurrency?: number | null;
    /**
     * Format: int64
     * @description Of one request, for each choice. Null = no limit.
     */
    max_output_tokens?: number | null;
    /**
     * Format: int64
     * @description Of an adapter's largest module. Null = no limit.
     */
    max_rank?: number | null;
    /**
     * Format: int64
     * @description Device memory of each host for pinned adapters. Null = none may be pinned.
     */
    pinned_bytes?: number | null;
    /**
     * Format: int64
     * @description Within any 60 seconds. Null = no limit.
     */
    requests_per_minute?: number | null;
    /**
     * Format: int64
     * @description Content of versions that are not archived. Null = no limit.
     */
    storage_bytes?: number | null;
    /**
     * Format: int64
     * @description By UTC day. Null = no limit.
     */
    tokens_per_day?: number | null;
    /**
     * Format: int64
     * @description Prompt and output, within any 60 seconds. Null = no limit.
     */
    tokens_per_minute?: number | null;
    /**
     * Format: int64
     * @description By UTC month. Null = no limit.
     */
    tokens_per_month?: number | null;
};
/** @description The current usage. Null means not counted: nothing limits it, or the counters cannot be reached. */
export type TenantLimitUsage = {
    adapters: number;
    concurrency: number | null;
    requests_per_minute: number | null;
    storage_bytes: number;
    tokens_per_day: number;
    /** @description Running requests count with all they may use. */
    tokens_per_minute: number | null;
    tokens_per_month: number;
};
export type TenantMemberPage = {
    results: Member[];
    total: number;
};
export type TenantPage = {
    results: TenantRow[];
    total: number;
};
/** @description The adapters and prefixes that a tenant keeps in device memory. */
export type TenantPins = {
    adapters: PinnedAdapter[];
    /** @description What it may take; null or 0 = nothing may. */
    limit_bytes: number | null;
    prefixes: Prefix[];
    /** @description Of each host, where it is most. */
    used_bytes: number;
};
export type TenantRow = {
    /** @description That are not archived. */
    adapters: number;
    /** Format: date-time */
    created_at: string;
    /** Format: date-time */
    deleted_at: string | null;
    /** @description That are not revoked. */
    keys: number;
    members: number;
    name: string;
    slug: string;
    state: TenantState;
    /** Format: date-time */
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
     * @description Priced tokens per weight that it has had more than the tenant here that has had least.
     */
    ahead: number;
    name: string;
    /**
     * Format: double
     * @description Its weight's share among the tenants in the engine now.
     */
    owed: number;
    /** @description Why its next request waits: `adapter_loading`, `no_room`, `background`, `tenant_cap`, `own_queue`, `own_quota`, `batch_full`, `queue`. */
    reason: string;
    /**
     * Format: double
     * @description Its share of the service of the last 10 to 20 seconds.
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
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /**
     * Format: double
     * @description Of the devices' time in this span, 0 to 1.
     */
    device_share: number;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    failed: number;
    latency: Latency;
    name: string;
    prompt_tokens: number;
    /** @description By an engine, or before any engine had them. */
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
    /** @description Null = the base model. */
    adapter: string | null;
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** Format: double */
    device_share: number;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    prompt_tokens: number;
    requests: number;
    tenant: string;
};
export type Transcript = {
    /** @description One for each choice. */
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
    created_by?: string | null;
    description: string;
    /** @description Return the bytes fetched so far of an import in progress; null for every other upload. */
    readonly fetched_bytes: number | null;
    files: UploadedFile[];
    /** Format: uuid */
    id: string;
    imported_from: UploadSource | null;
    /** @description Why it waits, was refused, or made no new version. */
    reason: Problem | null;
    report: ValidationReport | null;
    reused_version: boolean;
    state: UploadState;
    /** Format: date-time */
    updated_at: string;
    version?: number | null;
};
export type UploadedFile = {
    bytes: number;
    name: string;
    /** @description What its sender announced, in hex. */
    sha256?: string | null;
};
/** @description The source of an import; for a URL without its query, and never with a token. */
export type UploadSource = {
    /** @description What the revision meant when it began. */
    commit?: string | null;
    name: string;
    revision: string | null;
};
/** @enum {string} */
export type UploadState = "arriving" | "received" | "validating" | "refused" | "accepted" | "cancelled";
export type UsageAgainstLimits = {
    counters_reachable: boolean;
    /** @description Keys that can be used. */
    keys: KeyUsageAgainstLimits[];
    tenant: TenantUsageAgainstLimits;
};
export type UsagePart = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** @description Share of the devices' time, in microseconds. */
    device_us: number;
    /** @description Null = the base model, or members in the console. */
    name: string | null;
    /** @description Of a key. */
    prefix?: string | null;
    prompt_tokens: number;
    requests: number;
};
export type UsageReport = {
    /**
     * Format: date-time
     * @description Everything stored until then is in these sums.
     */
    as_of: string | null;
    by_adapter: AdapterUsage[];
    by_base_model: BaseModelUsage[];
    by_day: DayUsage[];
    by_key: KeyUsage[];
    /** @description Null = no prices: every cost is 0. */
    currency: string | null;
    days: number;
    latency: Latency;
    totals: UsageTotals;
};
export type UsageTotals = {
    cached_prompt_tokens: number;
    completion_tokens: number;
    /** @description Millionths of the currency, without storage. */
    cost_micros: number;
    /** @description Share of the devices' time, in microseconds. */
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
    tensor: string | null;
};
/** @description The result of a validation. `problems` is capped; `problem_count` is not. */
export type ValidationReport = {
    checks: ValidationCheck[];
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
    /** @description On hosts with adapters in FP8: auto (FP8 where it agrees), bf16 (never FP8) or fp8 (in any case). */
    adapter_dtype: AdapterDtypeEnum;
    /** @description With the unquantised base; null until a host has tried it, and where the base is not quantised. */
    agreement: (AgreementOutcome | NullEnum) | null;
    readonly aliases: string[];
    /** @description Whether that has to be confirmed before it can be live. */
    asks_for_base: boolean;
    /** @description Whether somebody has to say that it may be live as it is: it changes nothing, overflows, or differs on the quantised base. */
    asks_for_effect: boolean;
    base_model: string;
    bytes: number;
    /** @description Its own; null: the base model's. */
    chat_template: ChatTemplate | null;
    /** Format: date-time */
    created_at: string;
    created_by?: string | null;
    digest: string;
    dtype: string;
    effect: VersionEffect | null;
    error: Problem | null;
    /** @description The last score of each evaluation set. */
    evaluations: Score[];
    /**
     * Format: date-time
     * @description An archived version can be restored until then.
     */
    readonly kept_until: string | null;
    /** @description The base that the adapter names, if that is another one than was served. */
    named_base: string;
    num_parameters: number;
    number: number;
    /**
     * Format: date-time
     * @description When a request first ended with adapter_overflow: its weights are too large.
     */
    overflowed_at: string | null;
    placements: Placement[];
    rank: number;
    report: ValidationReport;
    state: VersionState;
    targets: string[];
    /** @description Whether it acts; null until a host has tried it. */
    verdict: (VerdictEnum | NullEnum) | null;
};
/** @description The effect of a version on a few prompts when the first host tried it, before it was ready. */
export type VersionEffect = {
    /** @description With the unquantised base; null where the host's base is not quantised. */
    agreement: Agreement | null;
    /** Format: date-time */
    at: string;
    /** @description How many of them are not the base model's. */
    differing_tokens: number;
    elapsed_ms: number;
    host: string;
    /**
     * Format: double
     * @description Of a log-probability, on all prompts.
     */
    largest_change: number;
    /** @description Of each layer: the norm of what the version adds to its matrices, by the norm of those. */
    layer_changes: number[];
    prompts: ProbedPrompt[];
    /** @description How many were generated with the version. */
    tokens: number;
    verdict: VerdictEnum;
};
/** @enum {string} */
export type VersionState = "validated" | "staging" | "ready" | "failed" | "archived" | "deleted";
/** @description A version's requests since the canary began; times are medians without the adapter's load. */
export type VersionStats = {
    failed: number;
    /** Format: double */
    first_token_ms: number | null;
    /** Format: double */
    inter_token_ms: number | null;
    requests: number;
};
export type VersionSummary = {
    /** @description On hosts with adapters in FP8: auto (FP8 where it agrees), bf16 (never FP8) or fp8 (in any case). */
    adapter_dtype: AdapterDtypeEnum;
    /** @description With the unquantised base; null until a host has tried it, and where the base is not quantised. */
    agreement: (AgreementOutcome | NullEnum) | null;
    /** @description Whether that has to be confirmed before it can be live. */
    asks_for_base: boolean;
    /** @description Whether somebody has to say that it may be live as it is: it changes nothing, overflows, or differs on the quantised base. */
    asks_for_effect: boolean;
    base_model: string;
    bytes: number;
    /** Format: date-time */
    created_at: string;
    created_by?: string | null;
    digest: string;
    dtype: string;
    error: Problem | null;
    /**
     * Format: date-time
     * @description An archived version can be restored until then.
     */
    readonly kept_until: string | null;
    /** @description The base that the adapter names, if that is another one than was served. */
    named_base: string;
    num_parameters: number;
    number: number;
    /**
     * Format: date-time
     * @description When a request first ended with adapter_overflow: its weights are too large.
     */
    overflowed_at: string | null;
    rank: number;
    state: VersionState;
    targets: string[];
    /** @description Whether it acts; null until a host has tried it. */
    verdict: (VerdictEnum | NullEnum) | null;
};
/** @description The tier of a version on a host, and how long a request would wait for it there. */
export type VersionTier = {
    by_tier: ColdStarts;
    /**
     * Format: double
     * @description From where it is now.
     */
    cold_start_ms: number | null;
    /** @description null: it has no experts, is not on the device, or the host keeps all experts in its page pool. */
    experts: AdapterExperts | null;
    host: string;
    /** @description `store`: the host has no copy. */
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
    created_by?: string | null;
    /** @default  */
    description: string;
    /** @description Which types to send; empty = all. */
    events?: EventType[];
    /** @description In a row. */
    failures: number;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description After failures nothing is sent until then.
     */
    rests_until: string | null;
    /** @description https only, at a public address. */
    url: string;
};
export type WebhookSettingsRequest = {
    /** @description By default true. */
    active?: boolean;
    description?: string;
    /** @description Which types to send; empty = all. */
    events?: EventType[];
    /** @description https only, at a public address. */
    url: string;
};
export type WebhookWithSecret = {
    /** @default true */
    active: boolean;
    /** Format: date-time */
    created_at: string;
    created_by?: string | null;
    /** @default  */
    description: string;
    /** @description Which types to send; empty = all. */
    events?: EventType[];
    /** @description In a row. */
    failures: number;
    /** Format: uuid */
    id: string;
    /**
     * Format: date-time
     * @description After failures nothing is sent until then.
     */
    rests_until: string | null;
    /** @description Signs the messages. It is shown this once. */
    secret: string;
    /** @description https only, at a public address. */
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
                /** @description "key.create", or "key" for all of that noun. */
                action?: string;
                /** @description Part of who did it. */
                actor?: string;
                before?: number;
                /**
                 * Format: date-time
                 * @description Then or later.
                 */
                since?: string;
                size?: number;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /** @description A tenant's short name; "-" for what belongs to none. */
                tenant?: string;
                /**
                 * Format: date-time
                 * @description Before it.
                 */
                until?: string;
            };
        };
    };
    "GET /api/operator/audit.csv": {
        answer: string;
        input: {
            query?: {
                /** @description "key.create", or "key" for all of that noun. */
                action?: string;
                /** @description Part of who did it. */
                actor?: string;
                /**
                 * Format: date-time
                 * @description Then or later.
                 */
                since?: string;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /** @description A tenant's short name; "-" for what belongs to none. */
                tenant?: string;
                /**
                 * Format: date-time
                 * @description Before it.
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
                 * @description Without `since`: so long before `until`.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description What happened then or later is counted, by the minute: see `until`.
                 */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /**
                 * Format: date-time
                 * @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step.
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
                /** @description Show what was kept so many seconds ago. */
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
                 * @description Without `since`: so long before `until`.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description What happened then or later is counted, by the minute: see `until`.
                 */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /** @description Its slug; left out: all. */
                tenant?: string;
                /**
                 * Format: date-time
                 * @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step.
                 */
                until?: string;
            };
        };
    };
    "GET /api/operator/report": {
        answer: OperatorReport;
        input: {
            query?: {
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                days?: number;
                /**
                 * Format: date
                 * @description With `to`, instead of `days`.
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
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                /** @description Its name, whole. */
                host?: string;
                /**
                 * @description Without `since`: so long before `until`.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description What happened then or later is counted, by the minute: see `until`.
                 */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /** @description Its slug. */
                tenant?: string;
                /**
                 * Format: date-time
                 * @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step.
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
                 * @description Left out: not ready.
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
                 * @description Left out: all that are not deleted.
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
                /** @description Like 2026-05; by default the present month (UTC). */
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
                /** @description The tenant's short name. */
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
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                days?: number;
                /**
                 * Format: date
                 * @description With `to`, instead of `days`.
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
                /** @enum {string} */
                sort?: "name" | "-name" | "rank" | "-rank" | "bytes" | "-bytes" | "created_at" | "-created_at";
                /**
                 * @description Of the live version, else of the newest; staging: validated ones too.
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
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
                /** @description "key.create", or "key" for all of that noun. */
                action?: string;
                /** @description Part of who did it. */
                actor?: string;
                before?: number;
                /**
                 * Format: date-time
                 * @description Then or later.
                 */
                since?: string;
                size?: number;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /**
                 * Format: date-time
                 * @description Before it.
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
                /** @description "key.create", or "key" for all of that noun. */
                action?: string;
                /** @description Part of who did it. */
                actor?: string;
                /**
                 * Format: date-time
                 * @description Then or later.
                 */
                since?: string;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /**
                 * Format: date-time
                 * @description Before it.
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
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
                /** @description Show what was kept so many seconds ago. */
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /**
                 * @description Only keys with this scope.
                 * @enum {string}
                 */
                scope?: "adapters.write" | "infer" | "view" | "";
                /** @description A part of the name. */
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/members": {
        answer: Member[];
        input: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
                /**
                 * @description By role: who may do most comes first.
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
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
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
                 * @description Without `since`: so long before `until`.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description What happened then or later is counted, by the minute: see `until`.
                 */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /**
                 * Format: date-time
                 * @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step.
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
                /** @description Its name, whole. */
                adapter?: string;
                /** @description Part of its name. */
                adapter_contains?: string;
                /** @description On which it ran, by its name now. */
                base_model?: string;
                cursor?: string;
                /** @description An error's code. */
                error?: string;
                /** @description Its name, whole. */
                host?: string;
                /** @description Of the request, whole. */
                id?: string;
                /** @description An API key's id, or "console". */
                key?: string;
                limit?: number;
                /** @description So did the first token. */
                min_first_token_ms?: number;
                /** @description All phases together took at least so many milliseconds. */
                min_ms?: number;
                /** @description Prompt and output together. */
                min_tokens?: number;
                /** @description Part of the model as the client wrote it. */
                model?: string;
                /** @enum {string} */
                outcome?: "finished" | "aborted" | "failed" | "refused" | "";
                /**
                 * Format: date-time
                 * @description Then or later.
                 */
                since?: string;
                /**
                 * Format: date-time
                 * @description Before it.
                 */
                until?: string;
                /** @description Of the adapter. */
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
                /** @description Its name, whole: its versions side by side. */
                adapter?: string;
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                /** @description Its name, whole. */
                host?: string;
                /**
                 * @description Without `since`: so long before `until`.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /**
                 * Format: date-time
                 * @description What happened then or later is counted, by the minute: see `until`.
                 */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /**
                 * Format: date-time
                 * @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step.
                 */
                until?: string;
                /** @description Of the adapter. */
                version?: number;
            };
            tenant: string;
        };
    };
    "GET /api/tenants/{tenant}/series/parts": {
        answer: UsagePart[];
        input: {
            query: {
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                /** @enum {string} */
                by: "adapter" | "key";
                limit?: number;
                offset?: number;
                /**
                 * @description Without `since`: so long before `until`.
                 * @enum {string}
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /** @description A part of the name, or of a key's prefix. */
                search?: string;
                /**
                 * Format: date-time
                 * @description What happened then or later is counted, by the minute: see `until`.
                 */
                since?: string;
                /**
                 * @description The largest come first.
                 * @enum {string}
                 */
                sort?: "requests" | "tokens" | "device_us";
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /**
                 * Format: date-time
                 * @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step.
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
                /** @description Like 2026-05; by default the present month (UTC). */
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
                /** @description A part of the name. */
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
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
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
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                days?: number;
                /**
                 * Format: date
                 * @description With `to`, instead of `days`.
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
