export type LinkState = "connecting" | "open" | "reconnecting" | "closed";

export interface LinkListener {
  onOpen?: () => void;
  onMessage: (message: Record<string, unknown>) => void;
  /** The link fell; it will come back by itself unless `closed` is true. */
  onDown?: (info: { code: number; closed: boolean }) => void;
}

export interface LinkOptions {
  url: () => string;
  /** The first message, made anew for each connection. A rejection with `fatal` ends the link, any other is a fall. */
  greeting?: () => Promise<object>;
  /** Close codes after which trying again is pointless: not signed in, wrong origin, not a member. */
  fatalCodes?: readonly number[];
  makeSocket?: (url: string) => WebSocket;
  random?: () => number;
}

/** Thrown by a greeting that will not succeed at another try either; `code` as if the server had closed with it. */
export class Refused extends Error {
  constructor(readonly code: number) {
    super(`refused with ${code}`);
  }
}

const FIRST_DELAY_MS = 400;
const LAST_DELAY_MS = 15_000;
const PING_EVERY_MS = 20_000;
const SILENCE_LIMIT_MS = 45_000;

/** Exponential with full jitter above half, so that a restarted server is not hit by all consoles at once. */
export function backoff(attempt: number, random: () => number = Math.random): number {
  const ceiling = Math.min(LAST_DELAY_MS, FIRST_DELAY_MS * 2 ** attempt);
  return ceiling / 2 + (random() * ceiling) / 2;
}

/** One JSON websocket that comes back by itself. State is readable through `subscribe` and `state`. */
export class ReconnectingSocket {
  #socket: WebSocket | null = null;
  #state: LinkState = "closed";
  #attempt = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #beat: ReturnType<typeof setInterval> | undefined;
  #heardAt = 0;
  #watchers = new Set<() => void>();

  constructor(
    private readonly options: LinkOptions,
    private readonly listener: LinkListener,
  ) {}

  get state(): LinkState {
    return this.#state;
  }

  subscribe = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
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

  /** Connect anew, in a moment: the server is about to stop. */
  move(): void {
    const socket = this.#socket;
    if (!socket) return;
    this.#fell(socket, 1012);
    socket.close(1000);
  }

  /** True when the message left; false when the link is down. */
  send(message: object): boolean {
    if (this.#state !== "open" || !this.#socket) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #connect(state: LinkState): void {
    this.#stopTimers();
    this.#set(state);
    const make = this.options.makeSocket ?? ((url: string) => new WebSocket(url));
    const socket = make(this.options.url());
    this.#socket = socket;
    socket.onopen = () => void this.#greet(socket);
    socket.onmessage = (event) => this.#received(socket, event.data);
    socket.onclose = (event) => this.#fell(socket, event.code);
  }

  async #greet(socket: WebSocket): Promise<void> {
    if (this.options.greeting) {
      try {
        const greeting = await this.options.greeting();
        if (socket !== this.#socket) return;
        socket.send(JSON.stringify(greeting));
      } catch (cause) {
        this.#fell(socket, cause instanceof Refused ? cause.code : 1006);
        socket.close();
        return;
      }
    }
    this.#opened(socket);
  }

  #opened(socket: WebSocket): void {
    if (socket !== this.#socket) return;
    this.#heardAt = Date.now();
    this.#beat = setInterval(() => this.#heartbeat(), PING_EVERY_MS);
    this.#set("open");
    this.listener.onOpen?.();
  }

  #received(socket: WebSocket, data: unknown): void {
    if (socket !== this.#socket || typeof data !== "string") return;
    this.#heardAt = Date.now();
    // Back-off restarts only once the server speaks, not when a proxy merely accepts and drops.
    this.#attempt = 0;
    const message = JSON.parse(data) as Record<string, unknown>;
    if (message.type !== "pong") this.listener.onMessage(message);
  }

  #fell(socket: WebSocket, code: number): void {
    if (socket !== this.#socket) return;
    this.#socket = null;
    this.#stopTimers();
    const closed = this.options.fatalCodes?.includes(code) ?? false;
    this.#set(closed ? "closed" : "reconnecting");
    this.listener.onDown?.({ code, closed });
    if (!closed) this.#retry = setTimeout(() => this.#connect("reconnecting"), backoff(this.#attempt++, this.options.random));
  }

  /** A laptop that slept keeps a dead socket "open"; silence past the limit counts as a fall. */
  #heartbeat(): void {
    if (Date.now() - this.#heardAt < SILENCE_LIMIT_MS) {
      this.send({ type: "ping" });
      return;
    }
    const socket = this.#socket;
    if (!socket) return;
    this.#fell(socket, 1006);
    socket.close();
  }

  #retryNow = (): void => {
    if (this.#state === "reconnecting" && !this.#socket) this.#connect("reconnecting");
  };

  #stopTimers(): void {
    clearTimeout(this.#retry);
    clearInterval(this.#beat);
  }

  #set(state: LinkState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#watchers.forEach((watcher) => watcher());
  }
}

/** ws:// or wss:// address of a path on the server that delivered this page. */
export function socketUrl(path: string): string {
  const url = new URL(path, globalThis.location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}
