import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { useLiveEvent } from "@/app/live-connection";
import { useTenant } from "@/features/session/queries";
import { newestRequests, requestsQuery } from "./queries";
import type { RequestsSearch } from "./search";
import { withNewest } from "./tail";

const EVERY_MS = 1000;
const ENDED = "usage.tick";

/**
 * Keeps the list of requests growing at its front: the socket says that some have ended, and the server says which of them
 * the filters let through, at most once a second.
 */
export function useTail(search: RequestsSearch): void {
  const client = useQueryClient();
  const tenant = useTenant();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const read = async () => {
    timer.current = undefined;
    // The next read makes up for a failed one.
    const newest = await newestRequests(tenant, search).catch(() => null);
    if (newest) client.setQueryData(requestsQuery(tenant, search).queryKey, (list) => list && withNewest(list, newest));
  };
  useLiveEvent(ENDED, () => {
    timer.current ??= setTimeout(() => void read(), EVERY_MS);
  });
  useEffect(() => () => clearTimeout(timer.current), []);
}

/** Returns how many requests ended since the component was mounted. */
export function useEnded(): number {
  const [ended, setEnded] = useState(0);
  useLiveEvent(ENDED, () => setEnded((count) => count + 1));
  return ended;
}
