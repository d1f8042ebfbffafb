export type Language = "curl" | "python" | "javascript" | "websocket";

export const LANGUAGES: { id: Language; label: string }[] = [
  { id: "curl", label: "curl" },
  { id: "python", label: "Python" },
  { id: "javascript", label: "JavaScript" },
  { id: "websocket", label: "WebSocket" },
];

export interface SnippetInput {
  model: string;
  origin: string;
  /** A real secret only right after it was made; otherwise the snippet reads an environment variable. */
  secret?: string;
  prompt?: string;
}

const PROMPT = "Hello! What can you do?";

/** Ready-to-run code that asks `model` one question. */
export function snippet(language: Language, input: SnippetInput): string {
  return WRITERS[language]({ ...input, prompt: input.prompt ?? PROMPT });
}

type Filled = SnippetInput & { prompt: string };

const WRITERS: Record<Language, (input: Filled) => string> = {
  curl: ({ model, origin, secret, prompt }) => `curl ${origin}/v1/chat/completions \\
  -H "Authorization: Bearer ${secret ?? "$LORIKEET_API_KEY"}" \\
  -H "Content-Type: application/json" \\
  -d '${JSON.stringify({ model, messages: [{ role: "user", content: prompt }], stream: true }).replaceAll("'", "'\\''")}'`,

  python: ({ model, origin, secret, prompt }) => `# pip install openai
${secret ? "" : "import os\n"}from openai import OpenAI

client = OpenAI(
    base_url="${origin}/v1",
    api_key=${secret ? JSON.stringify(secret) : 'os.environ["LORIKEET_API_KEY"]'},
)
stream = client.chat.completions.create(
    model=${JSON.stringify(model)},
    messages=[{"role": "user", "content": ${JSON.stringify(prompt)}}],
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)`,

  javascript: ({ model, origin, secret, prompt }) => `// npm install openai
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: "${origin}/v1",
  apiKey: ${secret ? JSON.stringify(secret) : "process.env.LORIKEET_API_KEY"},
});
const stream = await client.chat.completions.create({
  model: ${JSON.stringify(model)},
  messages: [{ role: "user", content: ${JSON.stringify(prompt)} }],
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}`,

  websocket: ({ model, origin, secret, prompt }) => `# pip install websockets
import asyncio, json${secret ? "" : ", os"}, websockets

async def main():
    async with websockets.connect("${origin.replace(/^http/, "ws")}/ws/inference") as ws:
        await ws.send(json.dumps({"type": "auth", "key": ${secret ? JSON.stringify(secret) : 'os.environ["LORIKEET_API_KEY"]'}}))
        await ws.send(json.dumps({"type": "generate", "id": "1", "request": {
            "model": ${JSON.stringify(model)},
            "messages": [{"role": "user", "content": ${JSON.stringify(prompt)}}],
        }}))
        async for raw in ws:
            message = json.loads(raw)
            if message["type"] == "delta":
                print(message["text"], end="", flush=True)
            elif message["type"] in ("done", "error"):
                break

asyncio.run(main())`,
};
