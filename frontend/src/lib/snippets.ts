export type Language = "curl" | "python" | "typescript" | "websocket";

export const LANGUAGES: { id: Language; label: string }[] = [
  { id: "curl", label: "curl" },
  { id: "python", label: "Python" },
  { id: "typescript", label: "TypeScript" },
  { id: "websocket", label: "WebSocket" },
];

type Body = Record<string, unknown> & { model: string };

interface Common {
  origin: string;
  /** A real secret, only right after it was created; otherwise the snippet reads an environment variable. */
  secret?: string;
}

export type SnippetInput = Common &
  ({ model: string; prompt?: string; body?: undefined } | { body: Body; model?: undefined; prompt?: undefined });

const PROMPT = "Hello! What can you do?";

/** Returns code that sends `body`, or an example message to `model`. */
export function snippet(language: Language, input: SnippetInput): string {
  const body = input.body ?? { model: input.model, messages: [{ role: "user", content: input.prompt ?? PROMPT }] };
  return WRITERS[language]({ ...input, body });
}

type Filled = Common & { body: Body };

/** Formats a value as Python: short values on one line, others indented. */
function python(value: unknown, indent: string): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const entries = Array.isArray(value)
    ? value.map((item) => [python(item, ""), python(item, inner)] as const)
    : Object.entries(value).map(
        ([name, item]) =>
          [`${JSON.stringify(name)}: ${python(item, "")}`, `${JSON.stringify(name)}: ${python(item, inner)}`] as const,
      );
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const short = `${open}${entries.map(([flat]) => flat).join(", ")}${close}`;
  if (short.length + indent.length <= 88 && !short.includes("\n")) return short;
  return `${open}\n${entries.map(([, long]) => `${inner}${long},\n`).join("")}${indent}${close}`;
}

/** Parameters of vLLM that OpenAI's libraries do not have. */
const BEYOND_OPENAI = ["top_k", "min_p", "repetition_penalty"];

/** Splits a body into the parameters that OpenAI's libraries take by name, and the others. */
function known(body: Body): [known: object, beyond: object] {
  const [named, beyond] = [true, false].map((wanted) =>
    Object.fromEntries(Object.entries(body).filter(([name]) => BEYOND_OPENAI.includes(name) !== wanted)),
  );
  return [named!, beyond!];
}

function pythonArguments(body: Body): string {
  const [named, beyond] = known(body);
  const all = Object.keys(beyond).length > 0 ? { ...named, extra_body: beyond } : named;
  return Object.entries(all)
    .map(([name, value]) => `    ${name}=${python(value, "    ")},\n`)
    .join("");
}

function typescriptFields(body: Body): string {
  const [named, beyond] = known(body);
  const fields = Object.entries(named).map(([name, value]) => `  ${name}: ${typescript(value)},\n`);
  // TypeScript refuses unknown properties in an object literal, but not in a spread of another type.
  if (Object.keys(beyond).length > 0) fields.push(`  ...(${typescript(beyond)} as object),\n`);
  return fields.join("");
}

function typescript(value: unknown): string {
  const short = spaced(value);
  return short.length <= 88 ? short : JSON.stringify(value, null, 2).replaceAll("\n", "\n  ");
}

/** Formats a value as TypeScript on one line, without quotes around names where possible. */
function spaced(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  const fields = Object.entries(value).map(
    ([name, item]) => `${/^[a-zA-Z_]\w*$/.test(name) ? name : JSON.stringify(name)}: ${spaced(item)}`,
  );
  return fields.length > 0 ? `{ ${fields.join(", ")} }` : "{}";
}

const hasTools = (body: Body) => "tools" in body;

const WRITERS: Record<Language, (input: Filled) => string> = {
  curl: ({ body, origin, secret }) => `curl ${origin}/v1/chat/completions \\
  -H "Authorization: Bearer ${secret ?? "$LORIKEET_API_KEY"}" \\
  -H "Content-Type: application/json" \\
  -d '${JSON.stringify({ ...body, stream: true }).replaceAll("'", "'\\''")}'`,

  python: ({ body, origin, secret }) => `# pip install openai
${secret ? "" : "import os\n"}from openai import OpenAI

client = OpenAI(
    base_url="${origin}/v1",
    api_key=${secret ? JSON.stringify(secret) : 'os.environ["LORIKEET_API_KEY"]'},
)
stream = client.chat.completions.create(
${pythonArguments(body)}    stream=True,
)
for chunk in stream:
    ${
      hasTools(body)
        ? `delta = chunk.choices[0].delta
    print(delta.content or "", end="", flush=True)
    for call in delta.tool_calls or []:
        print(call.function.name or "", call.function.arguments or "", end="", flush=True)`
        : 'print(chunk.choices[0].delta.content or "", end="", flush=True)'
    }`,

  typescript: ({ body, origin, secret }) => `// npm install openai
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: "${origin}/v1",
  apiKey: ${secret ? JSON.stringify(secret) : "process.env.LORIKEET_API_KEY"},
});
const stream = await client.chat.completions.create({
${typescriptFields(body)}  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");${
    hasTools(body)
      ? `
  for (const call of chunk.choices[0]?.delta?.tool_calls ?? []) {
    process.stdout.write(\`\${call.function?.name ?? ""} \${call.function?.arguments ?? ""}\`);
  }`
      : ""
  }
}`,

  websocket: ({ body, origin, secret }) => `# pip install websockets
import asyncio, json${secret ? "" : ", os"}, websockets

request = ${python(body, "")}

async def main():
    async with websockets.connect("${origin.replace(/^http/, "ws")}/ws/inference") as ws:
        await ws.send(json.dumps({"type": "auth", "key": ${secret ? JSON.stringify(secret) : 'os.environ["LORIKEET_API_KEY"]'}}))
        await ws.send(json.dumps({"type": "generate", "id": "1", "request": request}))
        async for raw in ws:
            message = json.loads(raw)
            if message["type"] == "delta":
                print(message${hasTools(body) ? '.get("text") or message.get("tool_calls") or ""' : '["text"]'}, end="", flush=True)
            elif message["type"] in ("done", "error"):
                break

asyncio.run(main())`,
};
