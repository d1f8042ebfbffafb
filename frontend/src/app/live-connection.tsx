import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useEffectEvent, useMemo, useSyncExternalStore } from "react";
import { EventStream, type LiveEvent } from "@/lib/event-stream";
import { InferenceSocket } from "@/lib/inference-socket";
import { api, unwrap } from "@/api/client";
import { ApiError } from "@/api/errors";
import { type ConnectionState, ConnectionRefusedError, socketUrl } from "@/lib/reconnecting-socket";
import { applyEvent, refreshTenant } from "./live-cache";

/** Close codes after which a retry cannot succeed: not signed in, not a member, wrong origin. */
const FATAL = [4401, 4403, 4404];

/** The first message of a websocket: a ticket for one use, fetched over HTTP. Cookies do not authenticate websockets. */
async function authMessage(tenant: string): Promise<object> {
  try {
    const { ticket } = await unwrap(api.POST("/api/tenants/{tenant}/socket-ticket", { params: { path: { tenant } } }));
    return { type: "auth", ticket };
  } catch (cause) {
    if (cause instanceof ApiError && [401, 403, 404].includes(cause.status)) throw new ConnectionRefusedError(4000 + cause.status);
    throw cause;
  }
}

interface Live {
  stream: EventStream;
  listeners: Set<(event: LiveEvent) => void>;
}

const LiveContext = createContext<Live | null>(null);

/** Keeps one event socket open for the tenant in view, and lets it write into the query caches. */
export function LiveProvider({ tenant, children }: { tenant: string; children: ReactNode }) {
  const client = useQueryClient();
  const live = useMemo<Live>(() => {
    const listeners: Live["listeners"] = new Set();
    const stream = new EventStream(
      { url: () => socketUrl("/ws/console"), authenticate: () => authMessage(tenant), fatalCodes: FATAL },
      {
        onEvent: (event) => {
          applyEvent(client, tenant, event);
          listeners.forEach((listener) => listener(event));
        },
        onLost: () => refreshTenant(client, tenant),
        onRefused: () => void client.invalidateQueries({ queryKey: ["session"], refetchType: "all" }),
      },
    );
    return { stream, listeners };
  }, [client, tenant]);
  useEffect(() => {
    live.stream.open();
    return () => {
      live.stream.close();
      closeInference();
    };
  }, [live]);
  return <LiveContext value={live}>{children}</LiveContext>;
}

/** Hear each live event of the tenant in view while the component is shown. */
export function useLiveEvent(name: string, heard: () => void): void {
  const live = useContext(LiveContext);
  const tell = useEffectEvent((event: LiveEvent) => event.event === name && heard());
  useEffect(() => {
    const listener = (event: LiveEvent) => void tell(event);
    live?.listeners.add(listener);
    return () => void live?.listeners.delete(listener);
  }, [live]);
}

const NOTHING = () => () => {};

export function useConnectionState(): ConnectionState {
  const stream = useContext(LiveContext)?.stream;
  return useSyncExternalStore(stream?.socket.subscribe ?? NOTHING, () => stream?.socket.state ?? "closed");
}

/** One inference socket for the whole console; it opens with the first generation. */
export function inferenceSocket(tenant: string): InferenceSocket {
  const existing = sockets.get(tenant);
  if (existing) return existing;
  const socket = new InferenceSocket({
    url: () => socketUrl("/ws/inference"),
    authenticate: () => authMessage(tenant),
    fatalCodes: FATAL,
  });
  sockets.set(tenant, socket);
  return socket;
}

const sockets = new Map<string, InferenceSocket>();

/** Ends all generations when the tenant changes or the session ends. */
function closeInference(): void {
  sockets.forEach((socket) => socket.close());
  sockets.clear();
}
