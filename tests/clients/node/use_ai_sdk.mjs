// Vercel's AI SDK with its provider for servers like this one: text, streams, objects by schema, tools and agents, embeddings.
import assert from "node:assert/strict";
import process from "node:process";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const ok = (feature) => console.log(`ok: ${feature}`);
const provider = createOpenAICompatible({ name: "lorikeet", baseURL: `${process.env.LORIKEET_URL}/v1`, apiKey: process.env.LORIKEET_KEY, includeUsage: true, supportsStructuredOutputs: true });
const common = { model: provider("lorikeet-demo"), maxOutputTokens: 200, temperature: 0, maxRetries: 0 };
const City = z.object({ city: z.string().max(16) });
const asked = [];
const get_weather = tool({ description: "Weather of a city.", inputSchema: z.object({ city: z.string() }), execute: ({ city }) => (asked.push(city), { sky: "sunny", degrees: 21 }) });

const text = await generateText({ ...common, prompt: "Hi" });
assert.ok(text.text && text.usage.outputTokens > 0);
ok("text");

let streamed = "";
for await (const piece of streamText({ ...common, prompt: "Hi" }).textStream) streamed += piece;
assert.equal(streamed, text.text);
const calls = streamText({ ...common, prompt: "Weather in Oslo?", tools: { get_weather: tool({ inputSchema: City }) }, toolChoice: "required" });
await calls.consumeStream();
assert.ok(City.parse((await calls.toolCalls)[0].input));
ok("streamed text and calls");

for (const toolChoice of ["required", { type: "tool", toolName: "get_weather" }]) {
  const { toolCalls } = await generateText({ ...common, prompt: "Weather in Oslo?", tools: { get_weather: tool({ inputSchema: City }) }, toolChoice });
  assert.ok(City.parse(toolCalls[0].input));
}
ok("tools");

for (const run of [(options) => generateText(options), async (options) => { const stream = streamText(options); await stream.consumeStream(); return { text: await stream.text }; }]) {
  asked.length = 0;
  const { text } = await run({ ...common, model: provider("tool-caller"), prompt: "What is the weather in Oslo?", tools: { get_weather }, stopWhen: stepCountIs(3) });
  assert.ok(text);
  assert.deepEqual(asked, ["Oslo"]);
}
ok("agent");

assert.ok(City.parse((await generateObject({ ...common, prompt: "Which city?", schema: City })).object));
const partial = streamObject({ ...common, prompt: "Which city?", schema: City });
let seen = 0;
for await (const _ of partial.partialObjectStream) seen += 1;
assert.ok(seen > 1 && City.parse(await partial.object));
ok("schema");

const { embeddings } = await embedMany({ model: provider.textEmbeddingModel("lorikeet-demo"), values: ["one", "two"] });
assert.equal(embeddings.length, 2);
ok("embeddings");
