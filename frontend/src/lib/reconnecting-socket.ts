export type ConnectionState = "connecting" | "open" | "reconnecting" | "closed";

interface SocketListener {
  onMessage: (message: Record<string, unknown>) => void;
  /** Called when the connection is lost. It is retried unless `closed` is true. */
  onDisconnected: (info: { closed: boolean }) => void;
}

export interface SocketOptions {
  url: () => string;
  /** Returns the first message of each connection. A `ConnectionRefusedError` with a fatal code ends the connection; any other error is retried. */
  authenticate?: () => Promise<object>;
  /** Close codes after which a retry cannot succeed: not signed in, wrong origin, not a member. */
  fatalCodes?: readonly number[];
  makeSocket?: (url: string) => WebSocket;
  random?: () => number;
}

/** Thrown by `authenticate` when a retry cannot succeed. `code` is handled like a close code of the server. */
export class ConnectionRefusedError extends Error {
  constructor(readonly code: number) {
    super(`refused with ${code}`);
  }
}

const FIRST_DELAY_MS = 400;
const LAST_DELAY_MS = 15_000;
const PING_EVERY_MS = 20_000;
const SILENCE_LIMIT_MS = 45_000;

/**
 * Returns the delay of an exponential back-off. The jitter prevents all consoles from reconnecting at once after a
 * restart.
 */
export function backoff(attempt: number, random: () => number = Math.random): number {
  const ceiling = Math.min(LAST_DELAY_MS, FIRST_DELAY_MS * 2 ** attempt);
  return ceiling / 2 + (random() * ceiling) / 2;
}

/** A JSON websocket that reconnects by itself. `state` and `subscribe` expose the connection state. */
export class ReconnectingSocket {
  #socket: WebSocket | null = null;
  #state: ConnectionState = "closed";
  #attempt = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #heartbeatTimer: ReturnType<typeof setInterval> | undefined;
  #lastMessageAt = 0;
  #subscribers = new Set<() => void>();
  #listeners: SocketListener[] = [];

  constructor(private readonly options: SocketOptions) {}

  /** Users of the connection. Each listener receives every message and ignores those of others. */
  listen(listener: SocketListener): void {
    this.#listeners.push(listener);
  }

  get state(): ConnectionState {
    return this.#state;
  }

  subscribe = (subscriber: () => void): (() => void) => {
    this.#subscribers.add(subscriber);
    return () => this.#subscribers.delete(subscriber);
  };

  open(): void {
    if (this.#socket) return;
    this.#connect("connecting");
    globalThis.addEventListener?.("online", this.#retryNow);
  }

  close(): void {
    globalThis.removeEventListener?.("online", this.#retryNow);
    this.#stopTimers();
    const socket = this.#socket;
    this.#socket = null;
    this.#set("closed");
    socket?.close(1000);
  }

  /** Closes the connection and reconnects after the back-off, because the server is about to stop. */
  reconnect(): void {
    const socket = this.#socket;
    if (!socket) return;
    this.#disconnected(socket, 1012);
    socket.close(1000);
  }

  /** Sends a message. Returns false while disconnected. */
  send(message: object): boolean {
    if (this.#state !== "open" || !this.#socket) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #connect(state: ConnectionState): void {
    this.#stopTimers();
    this.#set(state);
    const make = this.options.makeSocket ?? ((url: string) => new WebSocket(url));
    const socket = make(this.options.url());
    this.#socket = socket;
    socket.onopen = () => void this.#authenticate(socket);
    socket.onmessage = (event) => this.#received(socket, event.data);
    socket.onclose = (event) => this.#disconnected(socket, event.code);
  }

  async #authenticate(socket: WebSocket): Promise<void> {
    if (this.options.authenticate) {
      try {
        const message = await this.options.authenticate();
        if (socket !== this.#socket) return;
        socket.send(JSON.stringify(message));
      } catch (cause) {
        this.#disconnected(socket, cause instanceof ConnectionRefusedError ? cause.code : 1006);
        socket.close();
        return;
      }
    }
    this.#opened(socket);
  }

  #opened(socket: WebSocket): void {
    if (socket !== this.#socket) return;
    this.#lastMessageAt = Date.now();
    this.#heartbeatTimer = setInterval(() => this.#heartbeat(), PING_EVERY_MS);
    this.#set("open");
  }

  #received(socket: WebSocket, data: unknown): void {
    if (socket !== this.#socket || typeof data !== "string") return;
    this.#lastMessageAt = Date.now();
    // The back-off is reset by the first message of the server, not by a proxy that only accepts and drops the
    // connection.
    this.#attempt = 0;
    const message = JSON.parse(data) as Record<string, unknown>;
    if (message.type !== "pong") this.#listeners.forEach((listener) => listener.onMessage(message));
  }

  #disconnected(socket: WebSocket, code: number): void {
    if (socket !== this.#socket) return;
    this.#socket = null;
    this.#stopTimers();
    const closed = this.options.fatalCodes?.includes(code) ?? false;
    this.#set(closed ? "closed" : "reconnecting");
    this.#listeners.forEach((listener) => listener.onDisconnected({ closed }));
    if (!closed)
      this.#retry = setTimeout(() => this.#connect("reconnecting"), backoff(this.#attempt++, this.options.random));
  }

  /** Treats silence beyond the limit as a disconnect: after sleep a dead socket can stay "open". */
  #heartbeat(): void {
    if (Date.now() - this.#lastMessageAt < SILENCE_LIMIT_MS) {
      this.send({ type: "ping" });
      return;
    }
    const socket = this.#socket;
    if (!socket) return;
    this.#disconnected(socket, 1006);
    socket.close();
  }

  #retryNow = (): void => {
    if (this.#state === "reconnecting" && !this.#socket) this.#connect("reconnecting");
  };

  #stopTimers(): void {
    clearTimeout(this.#retry);
    clearInterval(this.#heartbeatTimer);
  }

  #set(state: ConnectionState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#subscribers.forEach((subscriber) => subscriber());
  }
}

/** Returns the ws:// or wss:// address of a path on the server of this page. */
export function socketUrl(path: string): string {
  const url = new URL(path, globalThis.location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}
