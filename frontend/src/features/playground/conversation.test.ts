// @vitest-environment node
import { describe, expect, it } from "vitest";
import {
  BEGINNING,
  branchesOf,
  messagesFor,
  type Playground,
  reduce,
  shownTurns,
  start,
  startColumns,
  turnsUpTo,
} from "./conversation";
import { DEFAULTS } from "./sampling";

const ask = (state: Playground, prompt: string, parent = shownTurns(state).at(-1)?.id ?? BEGINNING) =>
  reduce(state, { type: "ask", turn: state.nextId, parent, prompt, columns: state.columns, sampling: DEFAULTS });
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
    expect(messagesFor(state.turns, 0, " be brief ", two).map(({ content }) => content)).toEqual([
      "be brief",
      "One",
      "1",
      "Two",
    ]);
    expect(messagesFor(state.turns, late, "", two).map(({ content }) => content)).toEqual(["Two"]);
  });

  it("sends calls back that are whole, and what the tools returned", () => {
    let state = ask(start("a"), "Weather?");
    const turn = state.turns[0]!.id;
    const called = (index: number, id: string, written: string) => ({
      index,
      id,
      function: { name: "get_weather", arguments: written },
    });
    state = reduce(state, {
      type: "tool-calls",
      turn,
      column: 0,
      calls: [called(0, "c0", '{"city": '), called(1, "c1", '{"cit')],
    });
    state = reduce(state, {
      type: "tool-calls",
      turn,
      column: 0,
      calls: [{ index: 0, function: { arguments: '"Oslo"}' } }],
    });
    const results = [{ id: "c0", name: "get_weather", content: "sunny" }];
    expect(messagesFor(state.turns, 0, "", { prompt: "", results })).toEqual([
      { role: "user", content: "Weather?" },
      {
        role: "assistant",
        content: "",
        tool_calls: [{ id: "c0", type: "function", function: { name: "get_weather", arguments: '{"city": "Oslo"}' } }],
      },
      { role: "tool", content: "sunny", tool_call_id: "c0" },
    ]);
  });

  it("does not revive a stopped answer with late text", () => {
    let state = ask(start("a"), "Hi");
    const turn = state.turns[0]!.id;
    state = reduce(state, { type: "change", turn, column: 0, change: { status: "stopped" } });
    expect(text(state, turn, 0, "late").turns[0]!.answers[0]).toMatchObject({ text: "late", status: "stopped" });
  });

  it("keeps the branch that an edited message leaves", () => {
    let state = start("a");
    for (const prompt of ["One", "Two", "Three"]) state = ask(state, prompt);
    const [one, two] = shownTurns(state);
    state = ask(state, "Another two", two!.parent);
    const prompts = () => shownTurns(state).map(({ prompt }) => prompt);
    expect(prompts()).toEqual(["One", "Another two"]);
    expect(branchesOf(state.turns, two!).map(({ prompt }) => prompt)).toEqual(["Two", "Another two"]);
    state = reduce(state, { type: "show", turn: two!.id });
    expect(prompts()).toEqual(["One", "Two", "Three"]);
    state = ask(state, "Another one", one!.parent);
    expect(prompts()).toEqual(["Another one"]);
    state = ask(reduce(state, { type: "show", turn: one!.id }), "Four");
    expect(prompts()).toEqual(["One", "Two", "Three", "Four"]);
    expect(reduce(state, { type: "show", turn: 99 })).toBe(state);
  });

  it("asks again in one column, and the other keeps its answer", () => {
    let state = ask(startColumns(["a", "b"]), "Hi");
    const first = state.turns[0]!;
    state = text(text(state, first.id, 0, "A"), first.id, 1, "B");
    state = reduce(state, {
      type: "again",
      turn: state.nextId,
      of: first.id,
      column: { id: 0, model: "a@v2" },
      sampling: DEFAULTS,
    });
    const [shown] = shownTurns(state);
    expect(shown!.answers[0]).toMatchObject({ model: "a@v2", text: "", status: "waiting" });
    expect(shown!.answers[1]!.text).toBe("B");
    state = text(state, shown!.id, 0, "A2");
    state = ask(state, "And?");
    const past = turnsUpTo(state.turns, shownTurns(state).at(-1)!.parent);
    expect(messagesFor(past, 0, "", { prompt: "And?", results: [] }).map(({ content }) => content)).toEqual([
      "Hi",
      "A2",
      "And?",
    ]);
    expect(state.turns[0]!.answers[0]!.text).toBe("A");
  });

  it("writes what an answer cost into every branch that holds it, once", () => {
    let state = ask(startColumns(["a", "b"]), "Hi");
    const turn = state.turns[0]!.id;
    state = reduce(state, { type: "change", turn, column: 1, change: { requestId: "req_1", status: "done" } });
    state = reduce(state, {
      type: "again",
      turn: state.nextId,
      of: turn,
      column: state.columns[0]!,
      sampling: DEFAULTS,
    });
    const cost = { micros: 12, currency: "EUR" };
    state = reduce(state, { type: "billed", requestId: "req_1", cost });
    expect(state.turns.map(({ answers }) => answers[1]!.cost)).toEqual([cost, cost]);
    expect(reduce(state, { type: "billed", requestId: "req_1", cost })).toBe(state);
    expect(reduce(state, { type: "billed", requestId: "another", cost })).toBe(state);
  });

  it("ignores text for what was cleared", () => {
    const state = reduce(ask(start("a"), "Hi"), { type: "clear" });
    expect(text(state, 1, 0, "late").turns).toEqual([]);
  });
});
