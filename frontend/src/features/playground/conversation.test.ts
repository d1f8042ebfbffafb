// @vitest-environment node
import { describe, expect, it } from "vitest";
import { messagesFor, type Playground, reduce, start } from "./conversation";

const ask = (state: Playground, prompt: string) => reduce(state, { type: "ask", turn: state.nextId, prompt, columns: state.columns });
const text = (state: Playground, turn: number, column: number, words: string) =>
  reduce(state, { type: "text", turn, column, text: words, firstTextMs: 5 });

describe("playground state", () => {
  it("streams text into one answer and leaves the others alone", () => {
    let state = reduce(start("a"), { type: "add-column", model: "b" });
    const other = state.columns[1]!.id;
    state = ask(state, "Hi");
    const turn = state.turns[0]!.id;
    state = text(text(state, turn, 0, "Ah"), turn, 0, "oy");
    expect(state.turns[0]!.answers[0]).toMatchObject({ text: "Ahoy", status: "streaming", firstTextMs: 5, model: "a" });
    expect(state.turns[0]!.answers[other]).toMatchObject({ text: "", status: "waiting" });
  });

  it("gives each column only the turns that it answered", () => {
    let state = ask(start("a"), "One");
    state = text(state, state.turns[0]!.id, 0, "1");
    state = reduce(state, { type: "add-column", model: "b" });
    const late = state.columns[1]!.id;
    const two = { prompt: "Two", results: [] };
    expect(messagesFor(state.turns, 0, " be brief ", two).map(({ content }) => content)).toEqual(["be brief", "One", "1", "Two"]);
    expect(messagesFor(state.turns, late, "", two).map(({ content }) => content)).toEqual(["Two"]);
  });

  it("sends calls back that are whole, and what the tools returned", () => {
    let state = ask(start("a"), "Weather?");
    const turn = state.turns[0]!.id;
    const called = (index: number, id: string, written: string) => ({ index, id, function: { name: "get_weather", arguments: written } });
    state = reduce(state, { type: "tool-calls", turn, column: 0, calls: [called(0, "c0", '{"city": '), called(1, "c1", '{"cit')] });
    state = reduce(state, { type: "tool-calls", turn, column: 0, calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] });
    const results = [{ id: "c0", name: "get_weather", content: "sunny" }];
    expect(messagesFor(state.turns, 0, "", { prompt: "", results })).toEqual([
      { role: "user", content: "Weather?" },
      { role: "assistant", content: "", tool_calls: [{ id: "c0", type: "function", function: { name: "get_weather", arguments: '{"city": "Oslo"}' } }] },
      { role: "tool", content: "sunny", tool_call_id: "c0" },
    ]);
  });

  it("does not revive a stopped answer with late text", () => {
    let state = ask(start("a"), "Hi");
    const turn = state.turns[0]!.id;
    state = reduce(state, { type: "change", turn, column: 0, change: { status: "stopped" } });
    expect(text(state, turn, 0, "late").turns[0]!.answers[0]).toMatchObject({ text: "late", status: "stopped" });
  });

  it("ignores text for what was cleared", () => {
    const state = reduce(ask(start("a"), "Hi"), { type: "clear" });
    expect(text(state, 1, 0, "late").turns).toEqual([]);
  });
});
