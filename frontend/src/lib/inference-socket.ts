import type { ReconnectingSocket } from "./reconnecting-socket";

export interface ErrorBody {
  code: string;
  message: string;
  fix: string;
  param?: string | null;
  request_id?: string | null;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
}

/** Milliseconds that the engine measured. `adapter_load_ms` above zero means that the adapter was cold. */
export interface Timings {
  queue_ms: number;
  adapter_load_ms: number;
  first_token_ms: number;
  prefill_ms: number;
  decode_ms: number;
}

export interface Finish {
  finishReason: string;
  usage: Usage;
  timings: Timings;
}

/** New text of one tool call. The first delta of a call has its ID and name. */
export interface ToolCallDelta {
  index: number;
  id?: string;
  function: { name?: string; arguments: string };
}

export interface GenerationHandlers {
  onAccepted?: (requestId: string) => void;
  onText: (text: string, tokens: number) => void;
  onReasoning?: (text: string) => void;
  onToolCalls?: (calls: ToolCallDelta[]) => void;
  onDone: (finish: Finish) => void;
  /** Called after a cancel with the tokens until then. */
  onStopped?: (finish: Finish) => void;
  onError: (error: ErrorBody) => void;
}

interface Running {
  handlers: GenerationHandlers;
  request: object;
  /** Session of the socket that the generation was sent on; null until then. It does not change on later sockets. */
  session: string | null;
  seq: number | null;
  cancelled: boolean;
}

/** Handlers of a cancelled generation: its remaining frames are ignored. */
const SILENT: GenerationHandlers = { onText: () => {}, onDone: () => {}, onError: () => {} };

const LOST: ErrorBody = {
  code: "connection_lost",
  message: "The connection to the server was lost, and the answer could not be resumed.",
  fix: "Send the message again when the console has reconnected.",
};
const GAP: ErrorBody = {
  code: "stream_gap",
  message: "Part of the answer was lost, so the rest is not shown.",
  fix: "Send the message again.",
};
const UNAVAILABLE: ErrorBody = {
  code: "not_connected",
  message: "The server closed the streaming connection and does not accept a new one.",
  fix: "Sign in again, then reload the page.",
};

/** Milliseconds that the server keeps a disconnected generation, unless its hello message says otherwise. */
const RESUME_MS = 30_000;

/**
 * Many generations on the console's socket. Each one ends in exactly one of onDone or onError, or silently after cancel.
 *
 * When the socket disconnects, generations continue on the server. The next connection, to any web process, requests the frames that were missed.
 */
export class InferenceSocket {
  #running = new Map<string, Running>();
  #count = 0;
  /** Set when the server is about to stop: reconnect once no generation runs there. */
  #draining = false;
  #closeReason: ErrorBody | null = null;
  #session: string | null = null;
  #resumeMs = RESUME_MS;
  #resumeTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly socket: ReconnectingSocket) {
    socket.listen({
      onMessage: (message) => this.#receive(message),
      onDisconnected: ({ closed }) => this.#disconnected(closed),
    });
  }

  /** Starts a generation as soon as the socket is open, and returns a function that cancels it. */
  generate(request: object, handlers: GenerationHandlers): () => void {
    const id = `g${++this.#count}`;
    const running: Running = { handlers, request, session: null, seq: null, cancelled: false };
    this.#running.set(id, running);
    if (this.socket.state === "closed") this.socket.open();
    this.#submit(id, running);
    return () => this.#cancel(id);
  }

  close(): void {
    clearTimeout(this.#resumeTimer);
    this.#session = null;
    this.#running.clear();
  }

  #submit(id: string, running: Running): void {
    if (this.#session !== null && this.socket.send({ type: "generate", id, resume: true, request: running.request }))
      running.session = this.#session;
  }

  #cancel(id: string): void {
    const running = this.#running.get(id);
    if (!running || running.cancelled) return;
    // A sent generation stays in the map until the server's last frame, which carries its usage; an unsent one is removed.
    // While disconnected nothing can be sent: the next connection does not resume it, which cancels it.
    running.cancelled = true;
    if (running.session === null) this.#running.delete(id);
    else this.socket.send({ type: "cancel", id });
  }

  #receive(message: Record<string, unknown>): void {
    if (message.type === "move") this.#draining = true;
    if (message.type === "error" && message.id === undefined) this.#closeReason = message.error as ErrorBody;
    this.#handle(message);
    if (this.#draining && this.#idle()) this.socket.reconnect();
  }

  #idle(): boolean {
    return ![...this.#running.values()].some(({ session }) => session !== null);
  }

  #handle(message: Record<string, unknown>): void {
    if (message.type === "hello") {
      this.#onHello(message);
      return;
    }
    if (message.type === "resumed") {
      for (const id of (message.lost ?? []) as string[])
        this.#route(id, { type: "error", seq: 0, error: message.error });
      return;
    }
    this.#route(typeof message.id === "string" ? message.id : "", message);
  }

  #route(id: string, message: Record<string, unknown>): void {
    const running = this.#running.get(id);
    if (running) this.#advance(id, running, message);
  }

  #onHello({ session, resume_s }: Record<string, unknown>): void {
    clearTimeout(this.#resumeTimer);
    this.#closeReason = null;
    this.#session = String(session);
    this.#resumeMs = typeof resume_s === "number" ? resume_s * 1000 : RESUME_MS;
    this.#resume();
    this.#running.forEach((running, id) => running.session ?? this.#submit(id, running));
  }

  /** Requests the missed frames of each interrupted generation, by session. Cancelled generations are not resumed. */
  #resume(): void {
    const sessions = new Map<string, Record<string, number>>();
    for (const [id, { session, seq, cancelled }] of [...this.#running]) {
      if (session === null) continue;
      const after = sessions.get(session) ?? {};
      sessions.set(session, after);
      if (cancelled) this.#running.delete(id);
      else after[id] = seq ?? 0;
    }
    sessions.forEach((after, session) => this.socket.send({ type: "resume", session, after }));
  }

  #advance(id: string, running: Running, message: Record<string, unknown>): void {
    if (message.type === "accepted") {
      running.handlers.onAccepted?.(String(message.request_id));
      return;
    }
    if (isUnknownToServer(running, message)) {
      // The server does not know the generation and nothing was shown of it: submit it again.
      running.session = null;
      this.#submit(id, running);
      return;
    }
    const order = sequence(running.seq, message.seq);
    if (order === "duplicate") return;
    if (order === "gap" && message.type !== "error") {
      this.#cancel(id);
      running.handlers.onError(GAP);
      running.handlers = SILENT;
      return;
    }
    if (typeof message.seq === "number" && message.seq > 0) running.seq = message.seq;
    this.#dispatch(id, running, message);
  }

  #dispatch(id: string, running: Running, message: Record<string, unknown>): void {
    const { handlers } = running;
    const { cancelled } = running;
    if (message.type === "delta" && !cancelled) deliver(handlers, message);
    if (message.type === "done") {
      this.#running.delete(id);
      if (cancelled) handlers.onStopped?.(finish(message));
      else handlers.onDone(finish(message));
    }
    if (message.type === "error") {
      this.#running.delete(id);
      const error = message.error as ErrorBody;
      // What the server says of frames and sessions is for programs.
      if (!cancelled) handlers.onError(error.code.startsWith("resume_") ? LOST : error);
    }
  }

  #disconnected(closed: boolean): void {
    this.#draining = false;
    this.#session = null;
    clearTimeout(this.#resumeTimer);
    if (closed) this.#failAll(this.#closeReason ?? UNAVAILABLE, () => true);
    // Unsent generations are sent after the reconnect, however late; sent ones can be resumed for a limited time only.
    else this.#resumeTimer = setTimeout(() => this.#failAll(LOST, ({ session }) => session !== null), this.#resumeMs);
  }

  #failAll(error: ErrorBody, which: (running: Running) => boolean): void {
    for (const [id, running] of [...this.#running]) {
      if (!which(running)) continue;
      this.#running.delete(id);
      if (!running.cancelled) running.handlers.onError(error);
    }
  }
}

function deliver(handlers: GenerationHandlers, { text, tokens, reasoning, tool_calls }: Record<string, unknown>): void {
  if (typeof reasoning === "string") handlers.onReasoning?.(reasoning);
  if (Array.isArray(tool_calls)) handlers.onToolCalls?.(tool_calls as ToolCallDelta[]);
  // The first delta of a choice may contain information about the prompt and no text.
  handlers.onText(typeof text === "string" ? text : "", Number(tokens ?? 0));
}

/** Returns whether the server does not know a generation of which nothing was shown yet. */
function isUnknownToServer({ seq, cancelled }: Running, message: Record<string, unknown>): boolean {
  return message.type === "error" && seq === null && !cancelled && (message.error as ErrorBody).code === "resume_lost";
}

/**
 * Compares a sequence number with the last one: the first may be any, each next one must be one more; 0 is outside the
 * sequence.
 */
function sequence(seen: number | null, seq: unknown): "next" | "duplicate" | "gap" {
  if (typeof seq !== "number" || seq === 0 || seen === null || seq === seen + 1) return "next";
  return seq <= seen ? "duplicate" : "gap";
}

function finish(message: Record<string, unknown>): Finish {
  const reasons = message.finish_reason;
  return {
    finishReason: String(Array.isArray(reasons) ? reasons[0] : reasons),
    usage: message.usage as Usage,
    timings: message.timings as Timings,
  };
}
