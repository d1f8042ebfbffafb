import type { Transcript } from "@/api/types";
import { BEGINNING, type Playground, reduce, shownTurns, start } from "./conversation";
import { DEFAULTS, type Sampling, settingsOf } from "./sampling";

/** A recorded request as a conversation: the earlier turns, and the last message to send again. */
export interface Replay {
  /** The recorded settings, with the system prompt. */
  sampling: Sampling;
  /** Names of settings that the playground has no control for. */
  left: string[];
  turns: { prompt: string; answer: string }[];
  prompt: string;
}

const ROLES = ["system", "developer", "user", "assistant", "text"];

/**
 * Returns the conversation, or null if it cannot be restored: it was cut, consists of token IDs, or has results of
 * tools.
 */
export function replayOf({ prompt: messages, cut, settings }: Transcript): Replay | null {
  if (cut || !messages.every(({ role }) => ROLES.includes(role))) return null;
  const { sampling, left } = settingsOf(settings ?? {});
  const replay: Replay = { sampling: { ...DEFAULTS, ...sampling }, left, turns: [], prompt: "" };
  for (const { role, content } of messages) {
    if (role === "system" || role === "developer") replay.sampling.system = joined(replay.sampling.system, content);
    else if (role !== "assistant") replay.prompt = joined(replay.prompt, content);
    // An answer without a message before it, or with only tool calls, does not form a turn.
    else if (!replay.prompt || !content) return null;
    else {
      replay.turns.push({ prompt: replay.prompt, answer: content });
      replay.prompt = "";
    }
  }
  return replay.prompt ? replay : null;
}

const joined = (before: string, more: string) => (before ? `${before}\n\n${more}` : more);

/** Returns the board at the start of a replay. */
export function startWith(model: string, replay: Replay | null): Playground {
  let state = start(model);
  for (const { prompt, answer } of replay?.turns ?? []) {
    const turn = state.nextId;
    state = reduce(state, {
      type: "ask",
      turn,
      parent: shownTurns(state).at(-1)?.id ?? BEGINNING,
      prompt,
      columns: state.columns,
      sampling: replay?.sampling ?? DEFAULTS,
    });
    state = reduce(state, { type: "change", turn, column: 0, change: { text: answer, status: "done" } });
  }
  return state;
}
