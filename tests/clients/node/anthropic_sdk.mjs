// Anthropic's TypeScript SDK. The scripted engine answers what a prompt tells it to say.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ maxRetries: 0 }); // ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
const base = { model: "support", max_tokens: 50 };
const user = (content) => [{ role: "user", content }];
const tools = [
  { name: "weather", description: "Of a city.", input_schema: { type: "object", properties: { city: { type: "string" } } } },
];

const message = await client.messages.create({ ...base, messages: user("say hello there") });
assert.equal(message.content[0].text, "hello there");
assert.equal(message.stop_reason, "end_turn");
assert.equal(message.usage.output_tokens, 2);

let text = "";
const stream = client.messages.stream({ ...base, messages: user("say one two three") });
stream.on("text", (part) => (text += part));
assert.equal((await stream.finalMessage()).content[0].text, "one two three");
assert.equal(text, "one two three");

const call = 'say <tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>';
for (const answer of [
  await client.messages.create({ ...base, tools, messages: user(call) }),
  await client.messages.stream({ ...base, tools, messages: user(call) }).finalMessage(),
]) {
  assert.equal(answer.stop_reason, "tool_use");
  const [use] = answer.content;
  assert.deepEqual([use.name, use.input], ["weather", { city: "Rome" }]);
  const result = [{ type: "tool_result", tool_use_id: use.id, content: "sunny" }, { type: "text", text: "say fine" }];
  const history = [...user(call), { role: "assistant", content: answer.content }, { role: "user", content: result }];
  assert.equal((await client.messages.create({ ...base, tools, messages: history })).content[0].text, "fine");
}

assert.ok((await client.messages.countTokens({ model: "support", messages: user("say x") })).input_tokens > 0);
const beta = { ...base, betas: ["context-management-2025-06-27"], messages: user("say x") };
assert.equal((await client.beta.messages.create(beta)).content[0].text, "x");
await assert.rejects(client.messages.create({ ...base, model: "nobody", messages: user("x") }), Anthropic.NotFoundError);
await assert.rejects(client.messages.create({ ...base, max_tokens: -1, messages: user("x") }), Anthropic.BadRequestError);
console.log("done");
