import type { ErrorBody, Finish, ToolCallDelta } from "@/lib/inference-socket";
import type { ChatMessage, Sampling } from "./sampling";

type AnswerStatus = "waiting" | "streaming" | "done" | "stopped" | "failed";

export interface ToolCall {
  id: string;
  name: string;
  /** JSON, as far as it has arrived. */
  arguments: string;
}

/** The result of a tool, for the call with that ID. */
export interface ToolResult {
  id: string;
  name: string;
  content: string;
}

/** Cost of an answer by the ledger, in millionths of the currency; null if nothing had a price. */
export interface Cost {
  micros: number | null;
  currency: string | null;
}

export interface Answer {
  model: string;
  /** The settings of the request. */
  sampling: Sampling;
  text: string;
  /** The reasoning before the answer, if the model produces one. */
  reasoning: string;
  toolCalls: ToolCall[];
  status: AnswerStatus;
  /** Milliseconds by this browser's clock from sending to the first text; null until then. */
  firstTextMs: number | null;
  requestId: string | null;
  finish: Finish | null;
  /** The cost, or null until the ledger has it. */
  cost: Cost | null;
  error: ErrorBody | null;
}

export interface Turn {
  id: number;
  /** ID of the preceding turn; `BEGINNING` for the first. Turns with the same parent are branches. */
  parent: number;
  /** The user's message; empty if results of tools were sent. */
  prompt: string;
  /** Results of the calls in the preceding answer, for the one column that made them. */
  results: ToolResult[];
  /** Answers by column ID. A column that was added later has no answer to earlier turns. */
  answers: Record<number, Answer>;
}

export interface Column {
  id: number;
  model: string;
}

export interface Playground {
  columns: Column[];
  /** All turns of all branches, in the order in which they were sent. They form a tree. */
  turns: Turn[];
  /** The child that is shown, by the ID of its parent, which may be `BEGINNING`. */
  shown: Record<number, number>;
  nextId: number;
}

/** The parent ID of first turns. IDs of turns begin at 1. */
export const BEGINNING = 0;

export const MAX_COLUMNS = 4;

export const isRunning = (answer: Answer | undefined) => answer?.status === "waiting" || answer?.status === "streaming";

export type Action =
  | {
      type: "ask";
      turn: number;
      parent: number;
      prompt: string;
      results?: ToolResult[];
      columns: Column[];
      sampling: Sampling;
    }
  | { type: "again"; turn: number; of: number; column: Column; sampling: Sampling }
  | { type: "show"; turn: number }
  | { type: "billed"; requestId: string; cost: Cost }
  | { type: "change"; turn: number; column: number; change: Partial<Answer> }
  | { type: "text"; turn: number; column: number; text: string; firstTextMs: number }
  | { type: "reasoning"; turn: number; column: number; text: string }
  | { type: "tool-calls"; turn: number; column: number; calls: ToolCallDelta[] }
  | { type: "add-column"; model: string }
  | { type: "remove-column"; column: number }
  | { type: "choose"; column: number; model: string }
  | { type: "clear" };

export const startColumns = (models: string[]): Playground => ({
  columns: models.map((model, id) => ({ id, model })),
  turns: [],
  shown: {},
  nextId: Math.max(1, models.length),
});

export const start = (model: string): Playground => startColumns([model]);

const newAnswer = (model: string, sampling: Sampling): Answer => ({
  model,
  sampling,
  text: "",
  reasoning: "",
  toolCalls: [],
  status: "waiting",
  firstTextMs: null,
  requestId: null,
  finish: null,
  cost: null,
  error: null,
});

export function reduce(state: Playground, action: Action): Playground {
  switch (action.type) {
    case "ask":
      return withTurn(state, ask(action));
    case "again":
      return again(state, action);
    case "show":
      return show(state, action.turn);
    case "billed":
      return billed(state, action);
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
      return changeAnswer(state, action.turn, action.column, (answer) => ({
        ...answer,
        ...streaming(answer),
        reasoning: answer.reasoning + action.text,
      }));
    case "tool-calls":
      return changeAnswer(state, action.turn, action.column, (answer) => ({
        ...answer,
        ...streaming(answer),
        toolCalls: action.calls.reduce(withDelta, answer.toolCalls),
      }));
    case "add-column":
      return {
        ...state,
        nextId: state.nextId + 1,
        columns: [...state.columns, { id: state.nextId, model: action.model }],
      };
    case "remove-column":
      return { ...state, columns: state.columns.filter(({ id }) => id !== action.column) };
    case "choose":
      return {
        ...state,
        columns: state.columns.map((column) =>
          column.id === action.column ? { ...column, model: action.model } : column,
        ),
      };
    case "clear":
      return { ...state, turns: [], shown: {} };
  }
}

const withTurn = (state: Playground, turn: Turn): Playground => ({
  ...state,
  nextId: turn.id + 1,
  turns: [...state.turns, turn],
  shown: { ...state.shown, [turn.parent]: turn.id },
});

/** Returns the state with a new branch that sends the same message, in which the other columns keep their answers. */
function again(state: Playground, { turn, of, column, sampling }: Extract<Action, { type: "again" }>): Playground {
  const old = state.turns.find(({ id }) => id === of);
  if (!old) return state;
  return withTurn(state, {
    ...old,
    id: turn,
    answers: { ...old.answers, [column.id]: newAnswer(column.model, sampling) },
  });
}

function show(state: Playground, turn: number): Playground {
  const branch = state.turns.find(({ id }) => id === turn);
  return branch ? { ...state, shown: { ...state.shown, [branch.parent]: turn } } : state;
}

/**
 * Returns the state with an answer's cost in every branch that has the answer, or the same state if none does: events
 * arrive for all requests of the tenant.
 */
function billed(state: Playground, { requestId, cost }: Extract<Action, { type: "billed" }>): Playground {
  const ofRequest = (answer: Answer) => answer.requestId === requestId && answer.cost === null;
  const inTurn = (turn: Turn): Turn => {
    if (!Object.values(turn.answers).some(ofRequest)) return turn;
    const answers = Object.entries(turn.answers).map(([column, answer]) => [
      column,
      ofRequest(answer) ? { ...answer, cost } : answer,
    ]);
    return { ...turn, answers: Object.fromEntries(answers) as Turn["answers"] };
  };
  const turns = state.turns.map(inTurn);
  return turns.every((turn, index) => turn === state.turns[index]) ? state : { ...state, turns };
}

/** Returns the turns of the branch that is shown, first to last. */
export function shownTurns({ turns, shown }: Playground): Turn[] {
  const byId = new Map(turns.map((turn) => [turn.id, turn]));
  const branch: Turn[] = [];
  for (let next = byId.get(shown[BEGINNING] ?? BEGINNING); next; next = byId.get(shown[next.id] ?? BEGINNING))
    branch.push(next);
  return branch;
}

/** Returns the turns before one with the parent `parent`, first to last. */
export function turnsUpTo(turns: Turn[], parent: number): Turn[] {
  const byId = new Map(turns.map((turn) => [turn.id, turn]));
  const branch: Turn[] = [];
  for (let turn = byId.get(parent); turn; turn = byId.get(turn.parent)) branch.unshift(turn);
  return branch;
}

/** Returns a turn and its branches, in the order in which they were sent. */
export const branchesOf = (turns: Turn[], { parent }: Turn): Turn[] => turns.filter((turn) => turn.parent === parent);

/** Returns the status after a frame. The last frame may arrive after a stop, which it does not undo. */
const streaming = (answer: Answer): Pick<Answer, "status"> => ({
  status: isRunning(answer) ? "streaming" : answer.status,
});

function withDelta(calls: ToolCall[], { index, id, function: { name, arguments: more } }: ToolCallDelta): ToolCall[] {
  const old = calls[index] ?? { id: "", name: "", arguments: "" };
  const next = [...calls];
  next[index] = { id: id ?? old.id, name: name ?? old.name, arguments: old.arguments + more };
  return next;
}

const ask = ({ turn, parent, prompt, results = [], columns, sampling }: Extract<Action, { type: "ask" }>): Turn => ({
  id: turn,
  parent,
  prompt,
  results,
  answers: Object.fromEntries(columns.map(({ id, model }) => [id, newAnswer(model, sampling)])),
});

function changeAnswer(state: Playground, turn: number, column: number, change: (answer: Answer) => Answer): Playground {
  const inTurn = (candidate: Turn): Turn => {
    const answer = candidate.answers[column];
    if (candidate.id !== turn || !answer) return candidate;
    return { ...candidate, answers: { ...candidate.answers, [column]: change(answer) } };
  };
  return { ...state, turns: state.turns.map(inTurn) };
}

/**
 * Returns the complete tool calls of an answer, which can be answered. A stopped or cut answer may end within a call.
 */
export const wholeCalls = ({ toolCalls }: Answer): ToolCall[] =>
  toolCalls.filter((call) => call.id && isJsonObject(call.arguments));

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

/** Returns the messages of one column: the turns that it answered, then the new message. */
export function messagesFor(
  turns: Turn[],
  column: number,
  system: string,
  question: Pick<Turn, "prompt" | "results">,
): ChatMessage[] {
  const past = turns.flatMap((turn): ChatMessage[] => {
    const answer = turn.answers[column];
    const reply = answer && answerMessage(answer);
    return reply ? [...questionMessages(turn), reply] : [];
  });
  const opening: ChatMessage[] = system.trim() ? [{ role: "system", content: system.trim() }] : [];
  return [...opening, ...past, ...questionMessages(question)];
}

const questionMessages = ({ prompt, results }: Pick<Turn, "prompt" | "results">): ChatMessage[] =>
  results.length > 0
    ? results.map(({ id, content }) => ({ role: "tool", content, tool_call_id: id }))
    : [{ role: "user", content: prompt }];

/** Returns the assistant's message, or null if it is empty. */
function answerMessage(answer: Answer): ChatMessage | null {
  const calls = wholeCalls(answer);
  if (calls.length === 0) return answer.text ? { role: "assistant", content: answer.text } : null;
  return {
    role: "assistant",
    content: answer.text,
    tool_calls: calls.map(({ id, name, arguments: written }) => ({
      id,
      type: "function",
      function: { name, arguments: written },
    })),
  };
}

/** Returns the columns whose answers in `turn` can be compared. */
export const comparable = (turn: Turn, columns: Column[]): Column[] =>
  columns.filter(({ id }) => {
    const answer = turn.answers[id];
    return answer?.text && !isRunning(answer);
  });

export const comparableTurns = (turns: Turn[], columns: Column[]): Turn[] =>
  turns.filter((turn) => comparable(turn, columns).length > 1);
