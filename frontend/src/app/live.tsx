import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useMemo, useSyncExternalStore } from "react";
import { EventStream } from "@/lib/event-stream";
import { InferenceSocket } from "@/lib/inference-socket";
import { type LinkState, socketUrl } from "@/lib/reconnecting-socket";
import { applyEvent, refreshTenant } from "./live-cache";

/** Close codes that say "do not come back": not signed in, not a member, wrong origin. */
const FATAL = [4401, 4403, 4404];

const StreamContext = createContext<EventStream | null>(null);

/** Keeps one event socket open for the tenant in view, and lets it write into the query caches. */
export function LiveProvider({ tenant, children }: { tenant: string; children: ReactNode }) {
  const client = useQueryClient();
  const stream = useMemo(
    () =>
      new EventStream(
        { url: () => socketUrl(`/ws/console?tenant=${encodeURIComponent(tenant)}`), fatalCodes: FATAL },
        {
          onEvent: (event) => applyEvent(client, tenant, event),
          onLost: () => refreshTenant(client, tenant),
          onRefused: () => void client.invalidateQueries({ queryKey: ["session"], refetchType: "all" }),
        },
      ),
    [client, tenant],
  );
  useEffect(() => {
    stream.open();
    return () => {
      stream.close();
      closeInference();
    };
  }, [stream]);
  return <StreamContext value={stream}>{children}</StreamContext>;
}

const NOTHING = () => () => {};

export function useLinkState(): LinkState {
  const stream = useContext(StreamContext);
  return useSyncExternalStore(stream?.link.subscribe ?? NOTHING, () => stream?.link.state ?? "closed");
}

/** One inference socket for the whole console; it opens with the first generation. */
export function inferenceSocket(tenant: string): InferenceSocket {
  const existing = sockets.get(tenant);
  if (existing) return existing;
  const socket = new InferenceSocket({
    url: () => socketUrl(`/ws/inference?tenant=${encodeURIComponent(tenant)}`),
    fatalCodes: FATAL,
  });
  sockets.set(tenant, socket);
  return socket;
}

const sockets = new Map<string, InferenceSocket>();

/** Generations must not go on behind another tenant's pages, nor after the session. */
function closeInference(): void {
  sockets.forEach((socket) => socket.close());
  sockets.clear();
}
