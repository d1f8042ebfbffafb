import { type RefObject, useEffect, useEffectEvent, useRef } from "react";
import { keepBoards, type KeptBoards } from "./kept";

const EVERY_MS = 500;

/** Keeps the boards while they change, and when the page is left in any way. `draft` is what is being written by then. */
export function useKeptBoard(user: string, tenant: string, boards: KeptBoards, draft: RefObject<string>): void {
  const latest = useRef(boards);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const keep = useEffectEvent(() => {
    clearTimeout(timer.current);
    timer.current = undefined;
    const { board, earlier } = latest.current;
    keepBoards(user, tenant, { board: { ...board, draft: draft.current }, earlier });
  });
  useEffect(() => {
    latest.current = boards;
    // Not each time that a token comes: at most twice a second.
    timer.current ??= setTimeout(keep, EVERY_MS);
  });
  useEffect(() => {
    addEventListener("pagehide", keep);
    return () => {
      removeEventListener("pagehide", keep);
      keep();
    };
  }, []);
}
