// openai-node: the helpers for tools and schemas, responses, embeddings, files and batches.
import assert from "node:assert/strict";
import process from "node:process";
import OpenAI, { toFile } from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const ok = (feature) => console.log(`ok: ${feature}`);
const client = new OpenAI({ baseURL: `${process.env.LORIKEET_URL}/v1`, apiKey: process.env.LORIKEET_KEY, maxRetries: 0 });
const common = { model: "lorikeet-demo", max_tokens: 200, temperature: 0 };
const ask = (content) => [{ role: "user", content }];
const City = z.object({ city: z.string().max(16) });
const weather = zodFunction({ name: "get_weather", parameters: City });

assert.ok((await client.chat.completions.create({ ...common, messages: ask("Hi") })).choices[0].message.content);
ok("text");

const stream = client.chat.completions.stream({ ...common, messages: ask("Weather in Oslo?"), tools: [weather], tool_choice: "required", parallel_tool_calls: false });
let pieces = 0;
stream.on("tool_calls.function.arguments.delta", () => (pieces += 1));
const call = (await stream.finalChatCompletion()).choices[0].message.tool_calls[0];
assert.ok(pieces > 1 && City.parse(call.function.parsed_arguments));
ok("streamed text and calls");

const parsed = await client.chat.completions.parse({ ...common, messages: ask("Weather in Oslo?"), tools: [weather], tool_choice: "required", parallel_tool_calls: false });
assert.ok(City.parse(parsed.choices[0].message.tool_calls[0].function.parsed_arguments));
ok("tools");

const asked = [];
const runner = client.chat.completions.runTools({
  ...common,
  model: "tool-caller",
  messages: ask("What is the weather in Oslo?"),
  tools: [{ type: "function", function: { name: "get_weather", description: "Weather of a city.", parse: JSON.parse, parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] }, function: ({ city }) => (asked.push(city), { sky: "sunny", degrees: 21 }) } }],
});
assert.ok(await runner.finalContent());
assert.deepEqual(asked, ["Oslo"]);
ok("agent");

const answer = await client.chat.completions.parse({ ...common, messages: ask("Which city?"), response_format: zodResponseFormat(City, "city") });
assert.ok(City.parse(answer.choices[0].message.parsed));
ok("schema");

const response = await client.responses.parse({ model: "lorikeet-demo", input: "Which city?", max_output_tokens: 200, text: { format: zodTextFormat(City, "city") } });
assert.ok(City.parse(response.output_parsed));
const types = new Set();
for await (const event of await client.responses.create({ model: "lorikeet-demo", input: "Hi", stream: true, max_output_tokens: 20 })) types.add(event.type);
for (const type of ["response.created", "response.output_text.delta", "response.completed"]) assert.ok(types.has(type), type);
const stored = await client.responses.create({ model: "lorikeet-demo", input: "Hi", store: true, max_output_tokens: 20 });
assert.equal((await client.responses.retrieve(stored.id)).id, stored.id);
assert.ok((await client.responses.create({ model: "lorikeet-demo", input: "And?", previous_response_id: stored.id, max_output_tokens: 20 })).output_text);
await client.responses.delete(stored.id);
ok("responses");

const { data } = await client.embeddings.create({ model: "lorikeet-demo", input: ["one", "two"], dimensions: 8 });
assert.deepEqual(data.map(({ embedding }) => embedding.length), [8, 8]);
ok("embeddings");

const line = { custom_id: "a", method: "POST", url: "/v1/chat/completions", body: { ...common, max_tokens: 8, messages: ask("Hi") } };
const file = await client.files.create({ file: await toFile(Buffer.from(JSON.stringify(line)), "requests.jsonl"), purpose: "batch" });
let batch = await client.batches.create({ input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" });
while (["validating", "in_progress", "finalizing"].includes(batch.status)) {
  await new Promise((resolve) => setTimeout(resolve, 200));
  batch = await client.batches.retrieve(batch.id);
}
assert.equal(batch.status, "completed");
const result = JSON.parse(await (await client.files.content(batch.output_file_id)).text());
assert.equal(result.custom_id, "a");
assert.ok(result.response.body.choices[0].message.content);
await client.files.delete(file.id);
ok("files and batches");
