import type { ReconnectingSocket } from "./reconnecting-socket";

/** A live event of a tenant. `data` has the shape of the matching REST answer. */
export interface LiveEvent {
  seq: number;
  event: string;
  data: unknown;
}

interface EventStreamListener {
  onEvent: (event: LiveEvent) => void;
  /** Called when events were lost: cached data may be stale. */
  onLost: () => void;
  /** Called when the server refuses connections: the session ended, or the user is not a member of the tenant. */
  onRefused?: () => void;
}

/** Milliseconds that a gap in the sequence numbers may stay open before its events count as lost. */
const GAP_LIMIT_MS = 3000;

/**
 * Live events on the console's socket: numbered, delivered in order and once.
 *
 * Invariant: everything up to `#lastSeq` was delivered or reported lost; `#outOfOrder` holds only numbers above `#lastSeq + 1`.
 * After a reconnect, and when a number is skipped, the missing events are asked for with `replay`.
 */
export class EventStream {
  #lastSeq: number | null = null;
  #outOfOrder = new Map<number, LiveEvent>();
  #gapTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly socket: ReconnectingSocket,
    private readonly listener: EventStreamListener,
  ) {
    socket.listen({
      onMessage: (message) => this.#receive(message),
      onDisconnected: ({ closed }) => {
        this.#discardGap();
        if (closed) listener.onRefused?.();
      },
    });
  }

  close(): void {
    this.#discardGap();
  }

  #receive(message: Record<string, unknown>): void {
    if (message.type === "hello") this.#onHello(Number(message.seq));
    // The server no longer has the requested events.
    if (message.type === "reset") this.#reset(Number(message.seq));
    if (message.type === "event") this.#receiveEvent(message as unknown as LiveEvent);
  }

  #onHello(current: number): void {
    if (this.#lastSeq === null) {
      this.#lastSeq = current;
    } else if (current < this.#lastSeq) {
      // The server restarted, lost its events and counts from the start.
      this.#reset(current);
    } else if (current > this.#lastSeq) {
      this.#requestReplay(current);
    }
  }

  #receiveEvent(event: LiveEvent): void {
    this.#lastSeq ??= event.seq - 1;
    if (event.seq <= this.#lastSeq) return;
    this.#outOfOrder.set(event.seq, event);
    this.#deliver();
    if (this.#outOfOrder.size > 0 && this.#gapTimer === undefined)
      this.#requestReplay(Math.max(...this.#outOfOrder.keys()));
  }

  #deliver(): void {
    for (let next = this.#outOfOrder.get(this.#next()); next; next = this.#outOfOrder.get(this.#next())) {
      this.#outOfOrder.delete(next.seq);
      this.#lastSeq = next.seq;
      this.listener.onEvent(next);
    }
    if (this.#outOfOrder.size === 0) this.#stopGapTimer();
  }

  #next(): number {
    return (this.#lastSeq ?? 0) + 1;
  }

  #requestReplay(upTo: number): void {
    this.socket.send({ type: "replay", after: this.#lastSeq ?? 0 });
    this.#stopGapTimer();
    this.#gapTimer = setTimeout(() => this.#replayTimedOut(upTo), GAP_LIMIT_MS);
  }

  #replayTimedOut(upTo: number): void {
    this.#gapTimer = undefined;
    if (this.#lastSeq !== null && this.#lastSeq >= upTo) return;
    const late = [...this.#outOfOrder.values()].toSorted((a, b) => a.seq - b.seq);
    this.#reset(Math.max(upTo, ...this.#outOfOrder.keys()));
    late.forEach((event) => this.listener.onEvent(event));
  }

  #reset(current: number): void {
    this.#discardGap();
    this.#lastSeq = current;
    this.listener.onLost();
  }

  #discardGap(): void {
    this.#stopGapTimer();
    this.#outOfOrder.clear();
  }

  #stopGapTimer(): void {
    clearTimeout(this.#gapTimer);
    this.#gapTimer = undefined;
  }
}
