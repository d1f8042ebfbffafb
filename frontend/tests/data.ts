import type {
  Adapter,
  AdapterSummary,
  ApiKey,
  Model,
  Overview,
  Placement,
  RefusalSeries,
  SecondFactors,
  SeriesReport,
  ValidationReport,
  Session,
  Upload,
  UsageReport,
  Version,
} from "@/api/types";

const AT = "2026-05-04T10:00:00Z";

export const session: Session = {
  authenticated: true,
  csrf_token: "csrf-1",
  password_login: true,
  provider: null,
  sends_mail: true,
  sign_in_error: null,
  second_factor_for: null,
  user: {
    id: "u1",
    email: "ada@example.org",
    name: "Ada",
    is_operator: false,
    second_factor: false,
    has_password: true,
  },
  tenants: [
    {
      slug: "acme",
      name: "Acme",
      role: "owner",
      second_factor_required: false,
      capabilities: ["view", "infer", "adapters.write", "keys.write", "members.write", "tenant.write"],
      suspended_at: null,
      suspended_for: "",
    },
  ],
};

export const nobody: Session = {
  authenticated: false,
  csrf_token: "csrf-0",
  password_login: true,
  provider: null,
  sends_mail: true,
  sign_in_error: null,
  second_factor_for: null,
  user: null,
  tenants: [],
};

export const noSecondFactors: SecondFactors = {
  app: null,
  passkeys: [],
  recovery_codes_left: 0,
  required_by: [],
  passkeys_available: true,
  confirmed: true,
};

export const adapter: AdapterSummary = {
  name: "support",
  description: "Answers tickets",
  created_at: AT,
  live_version: 1,
  versions_count: 1,
  status: "ready",
  rank: 8,
  targets: ["q_proj", "v_proj"],
  bytes: 1000,
  base_model: "lorikeet-demo",
};

export const models: Model[] = [
  { id: "lorikeet-demo", kind: "base", description: "", adapter: null, version: null, aliases: [], created_at: AT },
  { id: "support", kind: "adapter", description: "", adapter: "support", version: 1, aliases: [], created_at: AT },
];

export const usage: UsageReport = {
  days: 7,
  as_of: AT,
  currency: "USD",
  totals: {
    requests: 0,
    prompt_tokens: 0,
    cached_prompt_tokens: 0,
    completion_tokens: 0,
    device_us: 0,
    cost_micros: 0,
  },
  by_day: [],
  by_adapter: [],
  by_base_model: [],
  by_key: [],
  latency: {
    first_token: { p50_ms: null, p95_ms: null, p99_ms: null },
    inter_token: { p50_ms: null, p95_ms: null, p99_ms: null },
  },
};

const noTotals = {
  ...usage.totals,
  outcomes: { finished: 0, aborted: 0, failed: 0, refused: 0 },
  mean_queue_ms: null,
  mean_adapter_load_ms: null,
  drafted_tokens: 0,
  accepted_tokens: 0,
  latency: usage.latency,
};

export const noRefusals: RefusalSeries = {
  since: "2026-05-04T00:00:00Z",
  until: "2026-05-05T00:00:00Z",
  step_s: 86_400,
  starts: ["2026-05-04T00:00:00Z"],
  total: 0,
  failed: 0,
  by_code: [],
};

export const series: SeriesReport = {
  since: AT,
  until: AT,
  step_s: 60,
  as_of: AT,
  currency: "USD",
  totals: noTotals,
  points: [],
  by_adapter: [],
  by_key: [],
  by_version: [],
  by_tenant: [],
  by_host: [],
  by_base_model: [],
};

export const overview: Overview = {
  adapters: { total: 1, ready: 1 },
  requests_24h: 0,
  tokens_24h: 0,
  hosts: [],
  recent_requests: [],
  first_steps: { uploaded: true, called: false, limited: false, invited: false },
};

export const key: ApiKey = {
  id: "k1",
  name: "backend",
  prefix: "abc",
  scopes: ["infer"],
  created_at: AT,
  created_by: "ada@example.org",
  last_used_at: null,
  expires_at: null,
  revoked_at: null,
  rotated_at: null,
  previous_until: null,
};

export const validReport: ValidationReport = {
  ok: true,
  problems: [],
  problem_count: 0,
  checks: [{ name: "shapes", ok: true, detail: "all fit lorikeet-demo" }],
  notes: [],
  manifest: null,
};

export const refusedReport: ValidationReport = {
  ok: false,
  problem_count: 1,
  problems: [
    {
      code: "shape_mismatch",
      message: "q_proj expects 2048 inputs, the base has 256.",
      fix: "Train on lorikeet-demo.",
      tensor: "a.b.lora_A",
    },
  ],
  checks: [{ name: "shapes", ok: false, detail: "1 problem" }],
  notes: [],
  manifest: null,
};

export const placement: Placement = {
  host: "gpu-1",
  phase: "downloading",
  bytes_done: 25,
  bytes_total: 100,
  attempts: 1,
  error: null,
  dtype: "",
  dtype_report: null,
  updated_at: AT,
};

export const version: Version = {
  adapter_dtype: "auto",
  adapter: "fresh",
  aliases: ["live"],
  number: 1,
  digest: `sha256:${"ab".repeat(32)}`,
  state: "staging",
  rank: 8,
  targets: ["q_proj"],
  dtype: "float16",
  bytes: 1000,
  num_parameters: 500,
  base_model: "lorikeet-demo",
  named_base: "",
  asks_for_base: false,
  created_at: AT,
  created_by: "ada@example.org",
  error: null,
  overflowed_at: null,
  verdict: null,
  agreement: null,
  asks_for_effect: false,
  kept_until: null,
  report: validReport,
  effect: null,
  chat_template: null,
  evaluations: [],
  placements: [placement],
};

export const adapterDetail: Adapter = {
  ...adapter,
  promotion_rule: null,
  versions: [{ ...version, adapter: undefined } as never],
  aliases: [],
};

export const upload: Upload = {
  id: "up-1",
  adapter: "fresh",
  description: "",
  state: "validating",
  reason: null,
  bytes: 1000,
  files: [{ name: "adapter_config.json", bytes: 100 }],
  imported_from: null,
  fetched_bytes: null,
  report: null,
  version: null,
  reused_version: false,
  created_at: AT,
  created_by: "ada@example.org",
  updated_at: AT,
};

export const noBudgets = {
  currency: "EUR",
  granted: { day: null, month: null },
  own: { day: null, month: null },
  keys: [],
  keys_total: 0,
};
