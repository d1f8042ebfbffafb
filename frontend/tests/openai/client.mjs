// The official client for Node against a running platform; tests/platform/test_gateway_node.py starts one and calls this.
//   OPENAI_BASE_URL, OPENAI_API_KEY   where, and with a key that may infer
//   VIEW_KEY, LIMITED_KEY             a key that may only look; one with a single request a minute
//   MODEL                             an adapter of the scripted engine: `say x` answers x, `words n` n words
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import process from "node:process";
import test from "node:test";
import OpenAI from "openai";

const model = process.env.MODEL ?? "support";
const client = new OpenAI({ maxRetries: 0 });
const say = (content) => ({ model, messages: [{ role: "user", content }] });

test("a whole chat answer", async () => {
  const answer = await client.chat.completions.create(say("say hello there"));
  assert.equal(answer.choices[0].message.content, "hello there");
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.equal(answer.usage.completion_tokens, 2);
});

test("a streamed chat answer with usage at its end", async () => {
  const stream = await client.chat.completions.create({
    ...say("words 40"),
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text.split(" ").length, 40);
  assert.equal(usage.completion_tokens, 40);
});

test("the stream helper gathers the same", async () => {
  const final = await client.chat.completions.stream(say("say one two three")).finalChatCompletion();
  assert.equal(final.choices[0].message.content, "one two three");
});

test("leaving a stream early is no error", async () => {
  const stream = await client.chat.completions.create({ ...say("words 5000"), stream: true });
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  assert.equal(stream.controller.signal.aborted, true);
});

test("completions, whole and streamed", async () => {
  const answer = await client.completions.create({ model, prompt: ["say a b", "say c"], n: 2 });
  assert.deepEqual(
    answer.choices.map(({ text }) => text),
    ["a b", "a b", "c", "c"],
  );
  let text = "";
  for await (const chunk of await client.completions.create({ model, prompt: "say x y z", stream: true }))
    text += chunk.choices[0].text;
  assert.equal(text, "x y z");
});

test("several choices and log-probabilities", async () => {
  const answer = await client.chat.completions.create({ ...say("say one two"), n: 2, logprobs: true, top_logprobs: 1 });
  assert.equal(answer.choices.length, 2);
  assert.deepEqual(
    answer.choices[1].logprobs.content.map(({ token }) => token),
    ["one", " two"],
  );
});

test("models, listed and by name", async () => {
  const names = [];
  for await (const found of client.models.list()) names.push(found.id);
  assert.ok(names.includes(model));
  assert.equal((await client.models.retrieve(`${model}@v1`)).id, `${model}@v1`);
  await assert.rejects(client.models.retrieve("nobody"), OpenAI.NotFoundError);
});

const refused = (create, kind, code) =>
  assert.rejects(create, (error) => error instanceof kind && (code === undefined || error.code === code));

test("errors are the client's own exceptions", async () => {
  await refused(
    client.chat.completions.create({ ...say("x"), model: "nobody" }),
    OpenAI.NotFoundError,
    "model_not_found",
  );
  await refused(
    client.chat.completions.create({ ...say("x"), temperature: 9 }),
    OpenAI.BadRequestError,
    "invalid_value",
  );
  await refused(
    client.chat.completions.create({ ...say("x"), functions: [{ name: "f" }] }),
    OpenAI.BadRequestError,
    "unsupported_parameter",
  );
  await refused(
    new OpenAI({ apiKey: "lk_aaaaaaaa_wrong" }).models.list(),
    OpenAI.AuthenticationError,
    "invalid_api_key",
  );
  await refused(
    new OpenAI({ apiKey: process.env.VIEW_KEY }).chat.completions.create(say("x")),
    OpenAI.PermissionDeniedError,
  );
  await refused(client.chat.completions.create(say("fail overloaded")), OpenAI.InternalServerError, "overloaded");
});

test("an error after the stream began reaches the reader", async () => {
  const stream = await client.chat.completions.create({ ...say("break 3"), stream: true });
  await assert.rejects(async () => {
    for await (const chunk of stream) void chunk;
  }, OpenAI.APIError);
});

test("a limit is a RateLimitError that says when to come back", async () => {
  const limited = new OpenAI({ apiKey: process.env.LIMITED_KEY, maxRetries: 0 });
  const { response } = await limited.chat.completions.create(say("say hi")).withResponse();
  assert.equal(response.headers.get("x-ratelimit-remaining-requests"), "0");
  await assert.rejects(limited.chat.completions.create(say("say hi")), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError);
    assert.equal(error.code, "rate_limit_exceeded");
    return Number(error.headers.get("retry-after-ms")) > 0;
  });
});

test("the same Idempotency-Key runs once", async () => {
  const options = { headers: { "Idempotency-Key": randomUUID() } };
  const first = await client.chat.completions.create(say("words 5"), options);
  const { data, response } = await client.chat.completions.create(say("words 5"), options).withResponse();
  assert.equal(response.headers.get("idempotent-replayed"), "true");
  assert.equal(data.id, first.id);
});
