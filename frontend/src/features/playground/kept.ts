import { keepHere, keptHere } from "@/lib/kept";
import { type Answer, isRunning, type Playground, type Turn } from "./conversation";
import { readSampling, type Sampling } from "./sampling";

/** The page as somebody left it. */
export interface Board {
  /** The address that it began with: opened again, that address goes on with it. */
  origin: string;
  state: Playground;
  sampling: Sampling;
  /** What was being written. */
  draft: string;
  /** Settings of a replayed request that could not be restored. */
  left: string[];
}

/** What is kept while the page is left or loaded again: the board in use, and the one that a link put aside. */
export interface KeptBoards {
  board: Board;
  earlier: Board | null;
}

const FORM = 1;

// By person too: whoever signs in next in this tab does not find them.
const nameOf = (user: string, tenant: string) => `playground.${user}.${tenant}`;

/** What still runs is kept as far as it came: nobody receives the rest of it. */
export function keepBoards(user: string, tenant: string, { board, earlier }: KeptBoards): void {
  const turns = board.state.turns.map(withoutRunning);
  keepHere(
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

/** Null if there are none, or some that this console does not understand. */
export function keptBoards(user: string, tenant: string): KeptBoards | null {
  try {
    const { form, board, earlier } = JSON.parse(keptHere(nameOf(user, tenant)) ?? "{}") as Partial<KeptBoards> & {
      form?: number;
    };
    const sound = form === FORM && board ? soundBoard(board) : null;
    return sound && { board: sound, earlier: earlier ? soundBoard(earlier) : null };
  } catch {
    return null;
  }
}

/** Null unless every turn follows an earlier one, and what is shown after a turn follows it. */
function soundBoard(board: Board): Board | null {
  const { columns, turns, shown } = board.state;
  const parents = new Map(turns.map(({ id, parent }) => [id, parent]));
  const sound =
    columns.length > 0 &&
    turns.every(({ id, parent }) => parent < id) &&
    Object.entries(shown).every(([parent, id]) => parents.get(id) === Number(parent));
  return sound ? { ...board, sampling: readSampling(board.sampling) } : null;
}
