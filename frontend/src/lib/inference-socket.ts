import { ReconnectingSocket, type LinkOptions } from "./reconnecting-socket";

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

/** Milliseconds the engine measured. `adapter_load_ms` above zero means the adapter was cold. */
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

export interface GenerationHandlers {
  onAccepted?: (requestId: string) => void;
  onText: (text: string, tokens: number) => void;
  onDone: (finish: Finish) => void;
  /** After a cancel: what had been made until then. */
  onStopped?: (finish: Finish) => void;
  onError: (error: ErrorBody) => void;
}

interface Running {
  handlers: GenerationHandlers;
  request: object;
  /** Of the socket it was sent on; null until then. It stays the generation's own on later sockets. */
  session: string | null;
  seq: number | null;
  cancelled: boolean;
}

/** For a generation that was given up: its remaining frames go nowhere. */
const SILENT: GenerationHandlers = { onText: () => {}, onDone: () => {}, onError: () => {} };

const LOST: ErrorBody = {
  code: "connection_lost",
  message: "The connection to the server was lost and did not come back in time to go on with the answer.",
  fix: "The console reconnects by itself; send the message again once it has.",
};
const GAP: ErrorBody = {
  code: "stream_gap",
  message: "Part of the answer did not arrive, so the rest is not shown.",
  fix: "Send the message again.",
};
const UNAVAILABLE: ErrorBody = {
  code: "not_connected",
  message: "The server closed the streaming connection and does not accept a new one.",
  fix: "Sign in again, then reload the page.",
};

/** What the server keeps a generation for, unless its hello says something else. */
const RESUME_MS = 30_000;

/**
 * Many generations over one socket. Each one ends in exactly one of onDone or onError, or silently after cancel.
 *
 * When the socket breaks they go on at the server: the next one asks for what was missed, in whatever process it ends up.
 */
export class InferenceSocket {
  readonly link: ReconnectingSocket;
  #running = new Map<string, Running>();
  #count = 0;
  /** The server is about to stop: leave it once nothing runs there. */
  #moving = false;
  #refusal: ErrorBody | null = null;
  #session: string | null = null;
  #resumeMs = RESUME_MS;
  #giveUp: ReturnType<typeof setTimeout> | undefined;

  constructor(options: LinkOptions) {
    this.link = new ReconnectingSocket(options, {
      onMessage: (message) => this.#receive(message),
      onDown: ({ closed }) => this.#fell(closed),
    });
  }

  /** Start a generation; returns what stops it. Waits for the link when that is still opening. */
  generate(request: object, handlers: GenerationHandlers): () => void {
    const id = `g${++this.#count}`;
    const running: Running = { handlers, request, session: null, seq: null, cancelled: false };
    this.#running.set(id, running);
    if (this.link.state === "closed") this.link.open();
    this.#submit(id, running);
    return () => this.#cancel(id);
  }

  close(): void {
    clearTimeout(this.#giveUp);
    this.link.close();
    this.#running.clear();
  }

  #submit(id: string, running: Running): void {
    if (this.#session !== null && this.link.send({ type: "generate", id, resume: true, request: running.request })) running.session = this.#session;
  }

  #cancel(id: string): void {
    const running = this.#running.get(id);
    if (!running || running.cancelled) return;
    // It stays known until the server's last word, which carries its usage; unsent ones are just forgotten. While the
    // link is down nothing can be said: the next socket does not ask for it, which ends it.
    running.cancelled = true;
    if (running.session === null) this.#running.delete(id);
    else this.link.send({ type: "cancel", id });
  }

  #receive(message: Record<string, unknown>): void {
    if (message.type === "move") this.#moving = true;
    if (message.type === "error" && message.id === undefined) this.#refusal = message.error as ErrorBody;
    this.#handle(message);
    if (this.#moving && this.#idle()) this.link.move();
  }

  #idle(): boolean {
    return ![...this.#running.values()].some(({ session }) => session !== null);
  }

  #handle(message: Record<string, unknown>): void {
    if (message.type === "hello") {
      this.#greeted(message);
      return;
    }
    if (message.type === "resumed") {
      for (const id of (message.lost ?? []) as string[]) this.#tell(id, { type: "error", seq: 0, error: message.error });
      return;
    }
    this.#tell(typeof message.id === "string" ? message.id : "", message);
  }

  #tell(id: string, message: Record<string, unknown>): void {
    const running = this.#running.get(id);
    if (running) this.#advance(id, running, message);
  }

  #greeted({ session, resume_s }: Record<string, unknown>): void {
    clearTimeout(this.#giveUp);
    this.#refusal = null;
    this.#session = String(session);
    this.#resumeMs = typeof resume_s === "number" ? resume_s * 1000 : RESUME_MS;
    this.#resume();
    this.#running.forEach((running, id) => running.session ?? this.#submit(id, running));
  }

  /** Ask for the rest of what broke off, each in its own session; what was cancelled meanwhile is not asked for. */
  #resume(): void {
    const sessions = new Map<string, Record<string, number>>();
    for (const [id, { session, seq, cancelled }] of [...this.#running]) {
      if (session === null) continue;
      const after = sessions.get(session) ?? {};
      sessions.set(session, after);
      if (cancelled) this.#running.delete(id);
      else after[id] = seq ?? 0;
    }
    sessions.forEach((after, session) => this.link.send({ type: "resume", session, after }));
  }

  #advance(id: string, running: Running, message: Record<string, unknown>): void {
    if (message.type === "accepted") {
      running.handlers.onAccepted?.(String(message.request_id));
      return;
    }
    if (isUnheardOf(running, message)) {
      // The socket broke before the server had it, or with everything it knew: nothing was shown, so ask anew.
      running.session = null;
      this.#submit(id, running);
      return;
    }
    const order = place(running.seq, message.seq);
    if (order === "old") return;
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
    if (message.type === "delta" && !cancelled) handlers.onText(String(message.text), Number(message.tokens ?? 0));
    if (message.type === "done") {
      this.#running.delete(id);
      if (cancelled) handlers.onStopped?.(finish(message));
      else handlers.onDone(finish(message));
    }
    if (message.type === "error") {
      this.#running.delete(id);
      if (!cancelled) handlers.onError(message.error as ErrorBody);
    }
  }

  #fell(closed: boolean): void {
    this.#moving = false;
    this.#session = null;
    clearTimeout(this.#giveUp);
    if (closed) this.#failAll(this.#refusal ?? UNAVAILABLE, () => true);
    // What was never sent goes out after the reconnect, however late; the rest is kept for so long only.
    else this.#giveUp = setTimeout(() => this.#failAll(LOST, ({ session }) => session !== null), this.#resumeMs);
  }

  #failAll(error: ErrorBody, which: (running: Running) => boolean): void {
    for (const [id, running] of [...this.#running]) {
      if (!which(running)) continue;
      this.#running.delete(id);
      if (!running.cancelled) running.handlers.onError(error);
    }
  }
}

/** Whether the server says that it knows nothing of a generation of which nothing was shown yet. */
function isUnheardOf({ seq, cancelled }: Running, message: Record<string, unknown>): boolean {
  return message.type === "error" && seq === null && !cancelled && (message.error as ErrorBody).code === "resume_lost";
}

/** Where a number stands: the first one may be anything, each next must be one more; 0 is of no generation's count. */
function place(seen: number | null, seq: unknown): "next" | "old" | "gap" {
  if (typeof seq !== "number" || seq === 0 || seen === null || seq === seen + 1) return "next";
  return seq <= seen ? "old" : "gap";
}

function finish(message: Record<string, unknown>): Finish {
  const reasons = message.finish_reason;
  return {
    finishReason: String(Array.isArray(reasons) ? reasons[0] : reasons),
    usage: message.usage as Usage,
    timings: message.timings as Timings,
  };
}
