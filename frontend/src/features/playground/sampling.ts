export type Format = "text" | "json" | "schema";

export interface Sampling {
  system: string;
  temperature: number;
  topP: number;
  /** Number of tokens to sample from; 0 means all. */
  topK: number;
  minP: number;
  presencePenalty: number;
  frequencyPenalty: number;
  repetitionPenalty: number;
  maxTokens: number;
  /** Seed of the random numbers; empty for a different answer each time. */
  seed: string;
  /** Cached prefixes are shared only between requests with the same salt, or without one. */
  cacheSalt: string;
  format: Format;
  /** JSON Schema that the answer must follow, with the format "schema". */
  schema: string;
  /** JSON array of functions that the model may call; empty for none. */
  tools: string;
}

export const DEFAULTS: Sampling = {
  system: "",
  temperature: 0.3,
  topP: 1,
  topK: 0,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  maxTokens: 256,
  seed: "",
  cacheSalt: "",
  format: "text",
  schema: "",
  tools: "",
};

export type NumberName = { [K in keyof Sampling]: Sampling[K] extends number ? K : never }[keyof Sampling];

/** The bounds that the API accepts. */
export const BOUNDS: Record<NumberName, { min: number; max: number; whole?: true }> = {
  temperature: { min: 0, max: 2 },
  topP: { min: 0, max: 1 },
  topK: { min: 0, max: 1_000_000, whole: true },
  minP: { min: 0, max: 1 },
  presencePenalty: { min: -2, max: 2 },
  frequencyPenalty: { min: -2, max: 2 },
  repetitionPenalty: { min: 0.01, max: 10 },
  maxTokens: { min: 1, max: 1_000_000, whole: true },
};

const MAX_SEED_DIGITS = 15;
export const MAX_SALT_LENGTH = 256;
const FORMATS: readonly Format[] = ["text", "json", "schema"];

/** Returns the nearest value that the API accepts, or the default if the input is not a number. */
export function bounded(name: NumberName, value: unknown): number {
  const { min, max, whole } = BOUNDS[name];
  if (typeof value !== "number" || Number.isNaN(value)) return DEFAULTS[name];
  const within = Math.min(max, Math.max(min, value));
  return whole ? Math.round(within) : within;
}

export const seedOf = (text: string) => text.replace(/\D/g, "").slice(0, MAX_SEED_DIGITS);

/** Returns settings from a link or from an older console. Missing and invalid values get their defaults. */
export function readSampling(value: unknown): Sampling {
  const input = isObject(value) ? value : {};
  const text = (name: "system" | "seed" | "cacheSalt" | "schema" | "tools") =>
    typeof input[name] === "string" ? input[name] : DEFAULTS[name];
  const numbers = Object.fromEntries(
    Object.keys(BOUNDS).map((name) => [name, bounded(name as NumberName, input[name])]),
  ) as Pick<Sampling, NumberName>;
  const format = FORMATS.find((one) => one === input.format) ?? DEFAULTS.format;
  return {
    ...numbers,
    format,
    system: text("system"),
    seed: seedOf(text("seed")),
    cacheSalt: text("cacheSalt").slice(0, MAX_SALT_LENGTH),
    schema: text("schema"),
    tools: text("tools"),
  };
}

export const EXAMPLE_SCHEMA = `{
  "type": "object",
  "properties": {
    "city": {"type": "string", "maxLength": 40},
    "people": {"type": "integer"}
  },
  "required": ["city", "people"],
  "additionalProperties": false
}`;
export const EXAMPLE_TOOLS = `[{
  "name": "get_weather",
  "description": "Weather of a city.",
  "parameters": {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"]
  }
}]`;

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the problem with the settings, or null if they can be sent. The server checks the content of the JSON. */
export const schemaProblem = ({ format, schema }: Sampling): string | null =>
  format === "schema" && !isObject(parsed(schema)) ? "Enter a JSON object that is the schema of the answer." : null;

export const toolsProblem = ({ tools }: Sampling): string | null => {
  if (!tools.trim()) return null;
  const list = parsed(tools);
  return Array.isArray(list) && list.every((tool) => isObject(tool) && typeof functionOf(tool).name === "string")
    ? null
    : "Enter a JSON array of functions, each with a name.";
};

export const problemOf = (sampling: Sampling): string | null => {
  if (schemaProblem(sampling)) return "The schema is not a valid JSON object. Correct or clear it under Sampling.";
  return toolsProblem(sampling)
    ? "The tools are not a valid JSON array of functions. Correct or clear them under Sampling."
    : null;
};

/** Returns the function of a tool in OpenAI's form, or the tool itself if it is a bare function. */
const functionOf = (tool: Json): Json => (isObject(tool.function) ? tool.function : tool);

function responseFormat({ format, schema }: Sampling): Json {
  if (format === "json") return { response_format: { type: "json_object" } };
  if (format === "schema")
    return { response_format: { type: "json_schema", json_schema: { name: "answer", schema: parsed(schema) } } };
  return {};
}

function toolList({ tools }: Sampling): Json {
  const list = tools.trim() ? (parsed(tools) as Json[]) : [];
  return list.length > 0 ? { tools: list.map((tool) => ({ type: "function", function: functionOf(tool) })) } : {};
}

/** API names of the settings that are sent only if they differ from their defaults. */
const SENT_IF_CHANGED = {
  topK: "top_k",
  minP: "min_p",
  presencePenalty: "presence_penalty",
  frequencyPenalty: "frequency_penalty",
  repetitionPenalty: "repetition_penalty",
} as const satisfies Partial<Record<NumberName, string>>;

const NAMES: Record<string, NumberName> = {
  temperature: "temperature",
  top_p: "topP",
  max_tokens: "maxTokens",
  ...Object.fromEntries(Object.entries(SENT_IF_CHANGED).map(([name, sent]) => [sent, name as NumberName])),
};

/** Returns the settings of a recorded request by the API's names, and the names of those without a control here. */
export function settingsOf(settings: Json): { sampling: Partial<Sampling>; left: string[] } {
  const sampling: Partial<Sampling> = {};
  const left: string[] = [];
  for (const [name, value] of Object.entries(settings)) {
    const known = NAMES[name];
    const format = name === "response_format" ? formatOf(value) : null;
    if (known) sampling[known] = bounded(known, value);
    else if (format) Object.assign(sampling, format);
    // JavaScript's numbers are not exact for larger seeds.
    else if (name === "seed" && Number.isSafeInteger(value) && seedOf(String(value)) === String(value))
      sampling.seed = String(value);
    else if (name === "cache_salt" && typeof value === "string") sampling.cacheSalt = value;
    else if (name === "tools" && toolsProblem({ ...DEFAULTS, tools: JSON.stringify(value) }) === null)
      sampling.tools = JSON.stringify((value as Json[]).map(functionOf), null, 2);
    else left.push(name);
  }
  return { sampling, left };
}

function formatOf(value: unknown): Partial<Sampling> | null {
  if (!isObject(value)) return null;
  if (value.type === "json_object") return { format: "json" };
  const schema = isObject(value.json_schema) ? value.json_schema.schema : undefined;
  return value.type === "json_schema" && isObject(schema)
    ? { format: "schema", schema: JSON.stringify(schema, null, 2) }
    : null;
}

function changedNumbers(sampling: Sampling): Json {
  const names = Object.keys(SENT_IF_CHANGED) as (keyof typeof SENT_IF_CHANGED)[];
  return Object.fromEntries(
    names.filter((name) => sampling[name] !== DEFAULTS[name]).map((name) => [SENT_IF_CHANGED[name], sampling[name]]),
  );
}

export type ChatMessage =
  | { role: "system" | "user" | "assistant"; content: string }
  | {
      role: "assistant";
      content: string;
      tool_calls: { id: string; type: "function"; function: { name: string; arguments: string } }[];
    }
  | { role: "tool"; content: string; tool_call_id: string };

/** Returns the body of a chat request. `sampling` must have passed `problemOf`. */
export function requestBody(model: string, messages: ChatMessage[], sampling: Sampling): Json & { model: string } {
  return {
    model,
    messages,
    temperature: sampling.temperature,
    top_p: sampling.topP,
    max_tokens: sampling.maxTokens,
    ...changedNumbers(sampling),
    ...(sampling.seed.trim() === "" ? {} : { seed: Number(sampling.seed) }),
    ...(sampling.cacheSalt === "" ? {} : { cache_salt: sampling.cacheSalt }),
    ...responseFormat(sampling),
    ...toolList(sampling),
  };
}
