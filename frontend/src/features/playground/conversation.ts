import type { ErrorBody, Finish, ToolCallDelta } from "@/lib/inference-socket";

type AnswerStatus = "waiting" | "streaming" | "done" | "stopped" | "failed";

export interface ToolCall {
  id: string;
  name: string;
  /** JSON, as far as it has come. */
  arguments: string;
}

/** What a tool returned, for the call of that id. */
export interface ToolResult {
  id: string;
  name: string;
  content: string;
}

export interface Answer {
  model: string;
  text: string;
  /** What the model thought before it answered, if it is one that does. */
  reasoning: string;
  toolCalls: ToolCall[];
  status: AnswerStatus;
  /** Milliseconds on this browser's clock, from sending to the first text; null until then. */
  firstTextMs: number | null;
  requestId: string | null;
  finish: Finish | null;
  error: ErrorBody | null;
}

export interface Turn {
  id: number;
  /** What the user said; empty where results of tools were sent. */
  prompt: string;
  /** Of the calls in the answer before, in the one column that made them. */
  results: ToolResult[];
  /** By column id. A column added later has no answer to earlier turns. */
  answers: Record<number, Answer>;
}

export interface Column {
  id: number;
  model: string;
}

export interface Playground {
  columns: Column[];
  turns: Turn[];
  nextId: number;
}

export const MOST_COLUMNS = 4;

export const isRunning = (answer: Answer | undefined) => answer?.status === "waiting" || answer?.status === "streaming";

export type Action =
  | { type: "ask"; turn: number; prompt: string; results?: ToolResult[]; columns: Column[] }
  | { type: "change"; turn: number; column: number; change: Partial<Answer> }
  | { type: "text"; turn: number; column: number; text: string; firstTextMs: number }
  | { type: "reasoning"; turn: number; column: number; text: string }
  | { type: "tool-calls"; turn: number; column: number; calls: ToolCallDelta[] }
  | { type: "add-column"; model: string }
  | { type: "remove-column"; column: number }
  | { type: "choose"; column: number; model: string }
  | { type: "clear" };

export const start = (model: string): Playground => ({ columns: [{ id: 0, model }], turns: [], nextId: 1 });

const fresh = (model: string): Answer => ({
  model,
  text: "",
  reasoning: "",
  toolCalls: [],
  status: "waiting",
  firstTextMs: null,
  requestId: null,
  finish: null,
  error: null,
});

export function reduce(state: Playground, action: Action): Playground {
  switch (action.type) {
    case "ask":
      return { ...state, nextId: action.turn + 1, turns: [...state.turns, ask(action)] };
    case "change":
      return changeAnswer(state, action.turn, action.column, (answer) => ({ ...answer, ...action.change }));
    case "text":
      return changeAnswer(state, action.turn, action.column, (answer) => ({
        ...answer,
        ...streaming(answer),
        text: answer.text + action.text,
        firstTextMs: answer.firstTextMs ?? action.firstTextMs,
      }));
    case "reasoning":
      return changeAnswer(state, action.turn, action.column, (answer) => ({ ...answer, ...streaming(answer), reasoning: answer.reasoning + action.text }));
    case "tool-calls":
      return changeAnswer(state, action.turn, action.column, (answer) => ({ ...answer, ...streaming(answer), toolCalls: action.calls.reduce(grown, answer.toolCalls) }));
    case "add-column":
      return { ...state, nextId: state.nextId + 1, columns: [...state.columns, { id: state.nextId, model: action.model }] };
    case "remove-column":
      return { ...state, columns: state.columns.filter(({ id }) => id !== action.column) };
    case "choose":
      return { ...state, columns: state.columns.map((column) => (column.id === action.column ? { ...column, model: action.model } : column)) };
    case "clear":
      return { ...state, turns: [] };
  }
}

/** What comes in the last frame may come after a stop; it belongs to the answer but does not revive it. */
const streaming = (answer: Answer): Pick<Answer, "status"> => ({ status: isRunning(answer) ? "streaming" : answer.status });

function grown(calls: ToolCall[], { index, id, function: { name, arguments: more } }: ToolCallDelta): ToolCall[] {
  const old = calls[index] ?? { id: "", name: "", arguments: "" };
  const next = [...calls];
  next[index] = { id: id ?? old.id, name: name ?? old.name, arguments: old.arguments + more };
  return next;
}

const ask = ({ turn, prompt, results = [], columns }: Extract<Action, { type: "ask" }>): Turn => ({
  id: turn,
  prompt,
  results,
  answers: Object.fromEntries(columns.map(({ id, model }) => [id, fresh(model)])),
});

function changeAnswer(state: Playground, turn: number, column: number, change: (answer: Answer) => Answer): Playground {
  const inTurn = (candidate: Turn): Turn => {
    const answer = candidate.answers[column];
    if (candidate.id !== turn || !answer) return candidate;
    return { ...candidate, answers: { ...candidate.answers, [column]: change(answer) } };
  };
  return { ...state, turns: state.turns.map(inTurn) };
}

export type ChatMessage =
  | { role: "system" | "user" | "assistant"; content: string }
  | { role: "assistant"; content: string; tool_calls: { id: string; type: "function"; function: { name: string; arguments: string } }[] }
  | { role: "tool"; content: string; tool_call_id: string };

/** The calls that can be sent back and answered: a stopped or cut answer may end within one. */
export const wholeCalls = ({ toolCalls }: Answer): ToolCall[] => toolCalls.filter((call) => call.id && isJsonObject(call.arguments));

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

/** The conversation as one column saw it: turns that it answered, then what is asked now. */
export function messagesFor(turns: Turn[], column: number, system: string, question: Pick<Turn, "prompt" | "results">): ChatMessage[] {
  const past = turns.flatMap((turn): ChatMessage[] => {
    const answer = turn.answers[column];
    const said = answer && answerMessage(answer);
    return said ? [...questionMessages(turn), said] : [];
  });
  const opening: ChatMessage[] = system.trim() ? [{ role: "system", content: system.trim() }] : [];
  return [...opening, ...past, ...questionMessages(question)];
}

const questionMessages = ({ prompt, results }: Pick<Turn, "prompt" | "results">): ChatMessage[] =>
  results.length > 0 ? results.map(({ id, content }) => ({ role: "tool", content, tool_call_id: id })) : [{ role: "user", content: prompt }];

/** Null where nothing was said. */
function answerMessage(answer: Answer): ChatMessage | null {
  const calls = wholeCalls(answer);
  if (calls.length === 0) return answer.text ? { role: "assistant", content: answer.text } : null;
  return {
    role: "assistant",
    content: answer.text,
    tool_calls: calls.map(({ id, name, arguments: written }) => ({ id, type: "function", function: { name, arguments: written } })),
  };
}
