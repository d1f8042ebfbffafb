import { type RefObject, useCallback, useEffect, useReducer, useRef } from "react";
import { useGenerations } from "@/app/live-connection";
import type { GenerationHandlers } from "@/lib/inference-socket";
import {
  type Action,
  BEGINNING,
  type Column,
  messagesFor,
  type Playground,
  reduce,
  shownTurns,
  type ToolResult,
  type Turn,
  turnsUpTo,
} from "./conversation";
import { requestBody, type Sampling } from "./sampling";

/** A buffer of the text since the last frame. Rendering once per frame keeps four fast columns smooth. */
class FrameBuffer {
  #text = "";
  #frame = 0;

  constructor(private readonly flushed: (text: string) => void) {}

  add(text: string): void {
    this.#text += text;
    this.#frame ||= requestAnimationFrame(() => this.flush());
  }

  flush(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const text = this.#text;
    this.#text = "";
    if (text) this.flushed(text);
  }
}

/** The state of the playground: columns, turns, and the generations that fill them. */
export function usePlayground(beginning: Playground) {
  const [state, dispatch] = useReducer(reduce, beginning);
  const stops = useRef(new Map<string, () => void>());
  useStopOnLeave(stops);
  const generations = useGenerations();

  const generate = useCallback(
    (turn: number, column: Column, body: object) => {
      const key = `${turn}.${column.id}`;
      const ended = () => void stops.current.delete(key);
      const stop = generations.generate(body, handlers(dispatch, turn, column.id, ended));
      stops.current.set(key, () => {
        ended();
        stop();
        dispatch({ type: "change", turn, column: column.id, change: { status: "stopped" } });
      });
    },
    [generations],
  );

  const messages = (question: Pick<Turn, "parent" | "prompt" | "results">, column: Column, { system }: Sampling) =>
    messagesFor(turnsUpTo(state.turns, question.parent), column.id, system, question);
  const askColumns = (columns: Column[], question: Pick<Turn, "parent" | "prompt" | "results">, sampling: Sampling) => {
    const turn = state.nextId;
    dispatch({ type: "ask", turn, columns, sampling, ...question });
    for (const column of columns)
      generate(turn, column, requestBody(column.model, messages(question, column, sampling), sampling));
  };
  const end = () => shownTurns(state).at(-1)?.id ?? BEGINNING;
  const ask = (prompt: string, sampling: Sampling) =>
    askColumns(state.columns, { parent: end(), prompt, results: [] }, sampling);
  /** Sends results of tools. Only the column that made the calls continues. */
  const sendResults = (column: Column, results: ToolResult[], sampling: Sampling) =>
    askColumns([column], { parent: end(), prompt: "", results }, sampling);
  /** Starts a branch with another message, which every column answers. */
  const edit = ({ parent }: Turn, prompt: string, sampling: Sampling) =>
    askColumns(state.columns, { parent, prompt, results: [] }, sampling);
  /** Starts a branch with another answer of one column. */
  const regenerate = (of: Turn, column: Column, sampling: Sampling) => {
    const turn = state.nextId;
    dispatch({ type: "again", turn, of: of.id, column, sampling });
    generate(turn, column, requestBody(column.model, messages(of, column, sampling), sampling));
  };
  const stop = () => [...stops.current.values()].forEach((cancel) => cancel());
  const remove = (column: number) => {
    stops.current.forEach((cancel, key) => key.endsWith(`.${column}`) && cancel());
    dispatch({ type: "remove-column", column });
  };
  return { state, dispatch, ask, sendResults, edit, regenerate, stop, remove };
}

/** Running generations are cancelled when the page is left, because nobody reads them. */
function useStopOnLeave(stops: RefObject<Map<string, () => void>>): void {
  useEffect(() => {
    const running = stops.current;
    const cancelAll = () => [...running.values()].forEach((cancel) => cancel());
    // A reload does not unmount; without this the generations would go on and be charged.
    addEventListener("pagehide", cancelAll);
    return () => {
      removeEventListener("pagehide", cancelAll);
      cancelAll();
    };
  }, [stops]);
}

function handlers(
  dispatch: (action: Action) => void,
  turn: number,
  column: number,
  ended: () => void,
): GenerationHandlers {
  const startedAt = performance.now();
  let firstTextMs: number | null = null;
  const change = (part: Extract<Action, { type: "change" }>["change"]) =>
    dispatch({ type: "change", turn, column, change: part });
  const buffer = new FrameBuffer((text) =>
    dispatch({ type: "text", turn, column, text, firstTextMs: firstTextMs ?? 0 }),
  );
  const thoughts = new FrameBuffer((text) => dispatch({ type: "reasoning", turn, column, text }));
  const flush = () => {
    thoughts.flush();
    buffer.flush();
  };
  return {
    onAccepted: (requestId) => change({ requestId }),
    onText: (text) => {
      if (!text) return;
      firstTextMs ??= performance.now() - startedAt;
      buffer.add(text);
    },
    onReasoning: (text) => thoughts.add(text),
    onToolCalls: (calls) => dispatch({ type: "tool-calls", turn, column, calls }),
    onDone: (finish) => {
      flush();
      ended();
      change({ status: "done", finish });
    },
    // Tokens until the stop were counted, so their figures are shown too.
    onStopped: (finish) => change({ finish }),
    onError: (error) => {
      flush();
      ended();
      change({ status: "failed", error });
    },
  };
}
