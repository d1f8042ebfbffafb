import type { ChatMessage } from "./conversation";

export type Format = "text" | "json" | "schema";

export interface Sampling {
  system: string;
  temperature: number;
  topP: number;
  maxTokens: number;
  /** Empty for a different answer each time. */
  seed: string;
  format: Format;
  /** JSON Schema that the answer must follow, with format "schema". */
  schema: string;
  /** A JSON array of functions that the model may call; empty for none. */
  tools: string;
}

export const DEFAULTS: Sampling = { system: "", temperature: 0.3, topP: 1, maxTokens: 256, seed: "", format: "text", schema: "", tools: "" };

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

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What is wrong with what was typed; null if it can be sent. The server checks what the JSON means. */
export const schemaProblem = ({ format, schema }: Sampling): string | null =>
  format === "schema" && !isObject(parsed(schema)) ? "A JSON object: the schema of the answer." : null;

export const toolsProblem = ({ tools }: Sampling): string | null => {
  if (!tools.trim()) return null;
  const list = parsed(tools);
  return Array.isArray(list) && list.every((tool) => isObject(tool) && typeof functionOf(tool).name === "string") ? null : "A JSON array of functions, each with a name.";
};

export const problemOf = (sampling: Sampling): string | null => {
  if (schemaProblem(sampling)) return "The schema is no JSON object yet.";
  return toolsProblem(sampling) ? "The tools are no JSON array of functions yet." : null;
};

/** Of OpenAI's form, or a function by itself. */
const functionOf = (tool: Json): Json => (isObject(tool.function) ? tool.function : tool);

function responseFormat({ format, schema }: Sampling): Json {
  if (format === "json") return { response_format: { type: "json_object" } };
  if (format === "schema") return { response_format: { type: "json_schema", json_schema: { name: "answer", schema: parsed(schema) } } };
  return {};
}

function toolList({ tools }: Sampling): Json {
  const list = tools.trim() ? (parsed(tools) as Json[]) : [];
  return list.length > 0 ? { tools: list.map((tool) => ({ type: "function", function: functionOf(tool) })) } : {};
}

/** Of what `problemOf` finds nothing wrong with. */
export function requestBody(model: string, messages: ChatMessage[], sampling: Sampling): Json & { model: string } {
  return {
    model,
    messages,
    temperature: sampling.temperature,
    top_p: sampling.topP,
    max_tokens: sampling.maxTokens,
    ...(sampling.seed.trim() === "" ? {} : { seed: Number(sampling.seed) }),
    ...responseFormat(sampling),
    ...toolList(sampling),
  };
}
