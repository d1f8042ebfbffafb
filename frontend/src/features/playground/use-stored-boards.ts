import { type RefObject, useEffect, useEffectEvent, useRef } from "react";
import { storeBoards, type StoredBoards } from "./stored-boards";

const EVERY_MS = 500;

/** Stores the boards while they change and when the page is left. `draft` returns the draft of a message. */
export function useStoredBoards(user: string, tenant: string, boards: StoredBoards, draft: RefObject<string>): void {
  const latest = useRef(boards);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const keep = useEffectEvent(() => {
    clearTimeout(timer.current);
    timer.current = undefined;
    const { board, earlier } = latest.current;
    storeBoards(user, tenant, { board: { ...board, draft: draft.current }, earlier });
  });
  useEffect(() => {
    latest.current = boards;
    // At most two writes per second, instead of one per token.
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
