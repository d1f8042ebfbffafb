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
  sent: boolean;
  seq: number | null;
  cancelled: boolean;
}

/** For a generation that was given up: its remaining frames go nowhere. */
const SILENT: GenerationHandlers = { onText: () => {}, onDone: () => {}, onError: () => {} };

const LOST: ErrorBody = {
  code: "connection_lost",
  message: "The connection to the server was lost while the answer was streaming.",
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

/** Many generations over one socket. Each one ends in exactly one of onDone or onError, or silently after cancel. */
export class InferenceSocket {
  readonly link: ReconnectingSocket;
  #running = new Map<string, Running>();
  #count = 0;
  /** The server is about to stop: leave it once nothing runs there. */
  #moving = false;
  #refusal: ErrorBody | null = null;

  constructor(options: LinkOptions) {
    this.link = new ReconnectingSocket(options, {
      onMessage: (message) => this.#receive(message),
      onDown: ({ closed }) => this.#fell(closed),
    });
  }

  /** Start a generation; returns what stops it. Waits for the link when that is still opening. */
  generate(request: object, handlers: GenerationHandlers): () => void {
    const id = `g${++this.#count}`;
    const running: Running = { handlers, request, sent: false, seq: null, cancelled: false };
    this.#running.set(id, running);
    if (this.link.state === "closed") this.link.open();
    this.#submit(id, running);
    return () => this.#cancel(id);
  }

  close(): void {
    this.link.close();
    this.#running.clear();
  }

  #submit(id: string, running: Running): void {
    running.sent = this.link.send({ type: "generate", id, request: running.request });
  }

  #cancel(id: string): void {
    const running = this.#running.get(id);
    if (!running || running.cancelled) return;
    // It stays known until the server's last word, which carries its usage; unsent ones are just forgotten.
    running.cancelled = true;
    if (!running.sent || !this.link.send({ type: "cancel", id })) this.#running.delete(id);
  }

  #receive(message: Record<string, unknown>): void {
    if (message.type === "move") this.#moving = true;
    if (message.type === "error" && message.id === undefined) this.#refusal = message.error as ErrorBody;
    this.#handle(message);
    if (this.#moving && this.#idle()) this.link.move();
  }

  #idle(): boolean {
    return ![...this.#running.values()].some(({ sent }) => sent);
  }

  #handle(message: Record<string, unknown>): void {
    if (message.type === "hello") {
      this.#refusal = null;
      this.#running.forEach((running, id) => running.sent || this.#submit(id, running));
      return;
    }
    const id = typeof message.id === "string" ? message.id : "";
    const running = this.#running.get(id);
    if (running) this.#advance(id, running, message);
  }

  #advance(id: string, running: Running, message: Record<string, unknown>): void {
    if (message.type === "accepted") {
      running.handlers.onAccepted?.(String(message.request_id));
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
    if (typeof message.seq === "number") running.seq = message.seq;
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
    for (const [id, running] of [...this.#running]) {
      // What was never sent goes out after the reconnect; what was running is gone with its socket.
      if (!running.sent && !closed) continue;
      this.#running.delete(id);
      if (!running.cancelled) running.handlers.onError(closed ? (this.#refusal ?? UNAVAILABLE) : LOST);
    }
  }
}

/** Where a number stands: the first one may be anything, each next must be one more. */
function place(seen: number | null, seq: unknown): "next" | "old" | "gap" {
  if (typeof seq !== "number" || seen === null || seq === seen + 1) return "next";
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
