// @vitest-environment node
import { describe, expect, it } from "vitest";
import { messagesFor } from "./conversation";
import { replayOf, startWith } from "./replay";

const said = (...messages: [role: string, content: string][]) => ({ prompt: messages.map(([role, content]) => ({ role, content })), answers: ["x"], cut: false });

describe("a kept request in the playground", () => {
  it("asks what was asked", () => {
    const replay = replayOf(said(["system", "Be brief."], ["user", "Hi"], ["assistant", "Ho"], ["user", "And?"]))!;
    const { turns } = startWith("support", replay);
    expect(messagesFor(turns, 0, replay.system, { prompt: replay.prompt, results: [] })).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hi" },
      { role: "assistant", content: "Ho" },
      { role: "user", content: "And?" },
    ]);
  });

  it("takes a prompt without roles as a message", () => {
    expect(replayOf(said(["text", "Once"]))).toEqual({ system: "", turns: [], prompt: "Once" });
  });

  it("is not offered where it would be another request", () => {
    expect(replayOf({ ...said(["user", "Hi"]), cut: true })).toBeNull();
    expect(replayOf(said(["token_ids", "1 2"]))).toBeNull();
    expect(replayOf(said(["user", "Hi"], ["assistant", ""], ["tool", "1"]))).toBeNull();
    expect(replayOf(said(["user", "Hi"], ["assistant", "Once upon"]))).toBeNull();
  });
});
