import { useQueryClient } from "@tanstack/react-query";
import {
  createContext,
  type ReactNode,
  useContext,
  useEffect,
  useEffectEvent,
  useMemo,
  useSyncExternalStore,
} from "react";
import { EventStream, type LiveEvent } from "@/lib/event-stream";
import { InferenceSocket } from "@/lib/inference-socket";
import { request } from "@/api/client";
import { ApiError } from "@/api/errors";
import { type ConnectionState, ConnectionRefusedError, ReconnectingSocket, socketUrl } from "@/lib/reconnecting-socket";
import { applyEvent, refreshTenant } from "./live-cache";

/** Close codes after which a retry cannot succeed: not signed in, not a member, wrong origin. */
const FATAL = [4401, 4403, 4404];

/**
 * Returns the first message of a websocket: a single-use ticket from the HTTP API. Cookies do not authenticate
 * websockets.
 */
async function authMessage(tenant: string): Promise<object> {
  try {
    const { ticket } = await request("POST /api/tenants/{tenant}/socket-ticket", { tenant });
    return { type: "auth", ticket };
  } catch (cause) {
    if (cause instanceof ApiError && [401, 403, 404].includes(cause.status))
      throw new ConnectionRefusedError(4000 + cause.status);
    throw cause;
  }
}

interface Live {
  socket: ReconnectingSocket;
  generations: InferenceSocket;
  listeners: Set<(event: LiveEvent) => void>;
  close: () => void;
}

const LiveContext = createContext<Live | null>(null);

/**
 * Keeps one socket open for the tenant in view: its live events are written into the query caches, and the playground's
 * generations run on it.
 */
export function LiveProvider({ tenant, children }: { tenant: string; children: ReactNode }) {
  const client = useQueryClient();
  const live = useMemo<Live>(() => {
    const listeners: Live["listeners"] = new Set();
    const socket = new ReconnectingSocket({
      url: () => socketUrl("/ws/console"),
      authenticate: () => authMessage(tenant),
      fatalCodes: FATAL,
    });
    const stream = new EventStream(socket, {
      onEvent: (event) => {
        applyEvent(client, tenant, event);
        listeners.forEach((listener) => listener(event));
      },
      onLost: () => refreshTenant(client, tenant),
      onRefused: () => void client.invalidateQueries({ queryKey: ["session"], refetchType: "all" }),
    });
    const generations = new InferenceSocket(socket);
    const close = () => [stream, generations, socket].forEach((part) => part.close());
    return { socket, generations, listeners, close };
  }, [client, tenant]);
  useEffect(() => {
    live.socket.open();
    return live.close;
  }, [live]);
  return <LiveContext value={live}>{children}</LiveContext>;
}

/** Calls `onEvent` for each live event of the tenant while the component is mounted. */
export function useLiveEvent(name: string, onEvent: (data: unknown) => void): void {
  const live = useContext(LiveContext);
  const notify = useEffectEvent((event: LiveEvent) => event.event === name && onEvent(event.data));
  useEffect(() => {
    const listener = (event: LiveEvent) => void notify(event);
    live?.listeners.add(listener);
    return () => void live?.listeners.delete(listener);
  }, [live]);
}

const NOTHING = () => () => {};

export function useConnectionState(): ConnectionState {
  const socket = useContext(LiveContext)?.socket;
  return useSyncExternalStore(socket?.subscribe ?? NOTHING, () => socket?.state ?? "closed");
}

/** The socket for generations of the tenant in view. All end when the tenant changes or the session ends. */
export function useGenerations(): InferenceSocket {
  const live = useContext(LiveContext);
  if (!live) throw new Error("Generations need a tenant in view.");
  return live.generations;
}
