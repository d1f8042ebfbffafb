// @vitest-environment node
import { describe, expect, it } from "vitest";
import { messagesFor } from "./conversation";
import { replayOf, startWith } from "./replay";
import { DEFAULTS, requestBody } from "./sampling";

const transcript = (...messages: [role: string, content: string][]) => ({
  prompt: messages.map(([role, content]) => ({ role, content })),
  answers: ["x"],
  settings: null,
  cut: false,
});

describe("a kept request in the playground", () => {
  it("asks what was asked", () => {
    const replay = replayOf(
      transcript(["system", "Be brief."], ["user", "Hi"], ["assistant", "Ho"], ["user", "And?"]),
    )!;
    const { turns } = startWith("support", replay);
    expect(messagesFor(turns, 0, replay.sampling.system, { prompt: replay.prompt, results: [] })).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hi" },
      { role: "assistant", content: "Ho" },
      { role: "user", content: "And?" },
    ]);
  });

  it("asks as it was asked, and says what it cannot", () => {
    const settings = {
      temperature: 0,
      top_p: 0.9,
      max_tokens: 64,
      top_k: 40,
      repetition_penalty: 1.15,
      seed: 7,
      cache_salt: "house",
      response_format: { type: "json_schema", json_schema: { name: "answer", schema: { type: "object" } } },
      tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }],
    };
    const { sampling, left } = replayOf({
      ...transcript(["user", "Hi"]),
      settings: { ...settings, stop: ["\n"], n: 2, reasoning_effort: "low" },
    })!;
    expect(left).toEqual(["stop", "n", "reasoning_effort"]);
    expect(requestBody("support", [], sampling)).toEqual({ model: "support", messages: [], ...settings });
    const odd = { seed: 2 ** 60, response_format: { type: "regex", text: "a+" }, tools: "none" };
    expect(replayOf({ ...transcript(["user", "Hi"]), settings: odd })).toMatchObject({
      sampling: DEFAULTS,
      left: ["seed", "response_format", "tools"],
    });
  });

  it("takes a prompt without roles as a message", () => {
    expect(replayOf(transcript(["text", "Once"]))).toEqual({ sampling: DEFAULTS, left: [], turns: [], prompt: "Once" });
  });

  it("is not offered where it would be another request", () => {
    expect(replayOf({ ...transcript(["user", "Hi"]), cut: true })).toBeNull();
    expect(replayOf(transcript(["token_ids", "1 2"]))).toBeNull();
    expect(replayOf(transcript(["user", "Hi"], ["assistant", ""], ["tool", "1"]))).toBeNull();
    expect(replayOf(transcript(["user", "Hi"], ["assistant", "Once upon"]))).toBeNull();
  });
});
