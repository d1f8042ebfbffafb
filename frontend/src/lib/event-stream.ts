import { ReconnectingSocket, type LinkOptions } from "./reconnecting-socket";

/** One live event of a tenant. `data` has the shape of the matching REST answer. */
export interface LiveEvent {
  seq: number;
  event: string;
  data: unknown;
}

export interface EventStreamListener {
  onEvent: (event: LiveEvent) => void;
  /** Events were lost for good; whatever is cached may be stale. */
  onLost: () => void;
  /** The server wants no more connections: the session ended, or this is not one's tenant. */
  onRefused?: () => void;
}

/** How long a hole in the numbers may stay open before its events count as lost. */
const GAP_LIMIT_MS = 3000;

/**
 * The console's event socket: numbered events, delivered in order and once.
 *
 * Invariant: everything up to `#seen` was delivered or reported lost; `#early` holds only numbers above `#seen + 1`.
 * After a reconnect, and when a number is skipped, the missing events are asked for with `replay`.
 */
export class EventStream {
  readonly link: ReconnectingSocket;
  #seen: number | null = null;
  #early = new Map<number, LiveEvent>();
  #gap: ReturnType<typeof setTimeout> | undefined;

  constructor(
    options: LinkOptions,
    private readonly listener: EventStreamListener,
  ) {
    this.link = new ReconnectingSocket(options, {
      onMessage: (message) => this.#receive(message),
      onDown: ({ closed }) => {
        this.#dropGap();
        if (closed) listener.onRefused?.();
      },
    });
  }

  open(): void {
    this.link.open();
  }

  close(): void {
    this.#dropGap();
    this.link.close();
  }

  #receive(message: Record<string, unknown>): void {
    if (message.type === "move") this.link.move();
    if (message.type === "hello") this.#greet(Number(message.seq));
    // What we asked for is too old for the server to remember.
    if (message.type === "reset") this.#lost(Number(message.seq));
    if (message.type === "event") this.#place(message as unknown as LiveEvent);
  }

  #greet(current: number): void {
    if (this.#seen === null) {
      this.#seen = current;
    } else if (current < this.#seen) {
      // The server counts anew: it restarted and its memory of events is gone.
      this.#lost(current);
    } else if (current > this.#seen) {
      this.#askReplay(current);
    }
  }

  #place(event: LiveEvent): void {
    this.#seen ??= event.seq - 1;
    if (event.seq <= this.#seen) return;
    this.#early.set(event.seq, event);
    this.#deliver();
    if (this.#early.size > 0 && this.#gap === undefined) this.#askReplay(Math.max(...this.#early.keys()));
  }

  #deliver(): void {
    for (let next = this.#early.get(this.#next()); next; next = this.#early.get(this.#next())) {
      this.#early.delete(next.seq);
      this.#seen = next.seq;
      this.listener.onEvent(next);
    }
    if (this.#early.size === 0) this.#stopGap();
  }

  #next(): number {
    return (this.#seen ?? 0) + 1;
  }

  #askReplay(upTo: number): void {
    this.link.send({ type: "replay", after: this.#seen ?? 0 });
    this.#stopGap();
    this.#gap = setTimeout(() => this.#giveUp(upTo), GAP_LIMIT_MS);
  }

  #giveUp(upTo: number): void {
    this.#gap = undefined;
    if (this.#seen !== null && this.#seen >= upTo) return;
    const late = [...this.#early.values()].toSorted((a, b) => a.seq - b.seq);
    this.#lost(Math.max(upTo, ...this.#early.keys()));
    late.forEach((event) => this.listener.onEvent(event));
  }

  #lost(current: number): void {
    this.#dropGap();
    this.#seen = current;
    this.listener.onLost();
  }

  #dropGap(): void {
    this.#stopGap();
    this.#early.clear();
  }

  #stopGap(): void {
    clearTimeout(this.#gap);
    this.#gap = undefined;
  }
}
