import { storeText, readText } from "@/lib/tab-storage";
import { type Answer, isRunning, type Playground, type Turn } from "./conversation";
import { readSampling, type Sampling } from "./sampling";

/** The state of the page when it was left. */
export interface Board {
  /** The address that the board began with. Opening that address again restores the board. */
  origin: string;
  state: Playground;
  sampling: Sampling;
  /** The draft of a message. */
  draft: string;
  /** Settings of a replayed request that could not be restored. */
  left: string[];
}

/** The boards that survive leaving or reloading the page: the current one, and the one that a link replaced. */
export interface StoredBoards {
  board: Board;
  earlier: Board | null;
}

const FORM = 1;

// The key contains the person, so that the next person who signs in in this tab does not see the boards.
const nameOf = (user: string, tenant: string) => `playground.${user}.${tenant}`;

/** Stores the boards. Running answers are stored as far as they arrived: nobody receives the rest of them. */
export function storeBoards(user: string, tenant: string, { board, earlier }: StoredBoards): void {
  const turns = board.state.turns.map(withoutRunning);
  storeText(
    nameOf(user, tenant),
    JSON.stringify({ form: FORM, board: { ...board, state: { ...board.state, turns } }, earlier }),
  );
}

function withoutRunning(turn: Turn): Turn {
  if (!Object.values(turn.answers).some(isRunning)) return turn;
  const answers = Object.entries(turn.answers).map(([column, answer]): [string, Answer] => [
    column,
    isRunning(answer) ? { ...answer, status: "stopped" } : answer,
  ]);
  return { ...turn, answers: Object.fromEntries(answers) };
}

/** Returns the stored boards, or null if there are none or the console does not understand them. */
export function storedBoards(user: string, tenant: string): StoredBoards | null {
  try {
    const { form, board, earlier } = JSON.parse(readText(nameOf(user, tenant)) ?? "{}") as Partial<StoredBoards> & {
      form?: number;
    };
    const sound = form === FORM && board ? soundBoard(board) : null;
    return sound && { board: sound, earlier: earlier ? soundBoard(earlier) : null };
  } catch {
    return null;
  }
}

/** Returns the board, or null unless each turn follows an earlier one and each shown child follows its parent. */
function soundBoard(board: Board): Board | null {
  const { columns, turns, shown } = board.state;
  const parents = new Map(turns.map(({ id, parent }) => [id, parent]));
  const sound =
    columns.length > 0 &&
    turns.every(({ id, parent }) => parent < id) &&
    Object.entries(shown).every(([parent, id]) => parents.get(id) === Number(parent));
  return sound ? { ...board, sampling: readSampling(board.sampling) } : null;
}
