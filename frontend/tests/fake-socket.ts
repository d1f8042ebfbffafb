/** A websocket that a test drives: it records what was sent and says what it is told to. */
export class FakeSocket {
  static opened: FakeSocket[] = [];
  static get last(): FakeSocket {
    const socket = FakeSocket.opened.at(-1);
    if (!socket) throw new Error("No socket was opened.");
    return socket;
  }

  onopen: (() => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  sent: Record<string, unknown>[] = [];
  closed = false;

  constructor(readonly url: string) {
    FakeSocket.opened.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Record<string, unknown>);
  }

  close(): void {
    this.closed = true;
  }

  accept(): void {
    this.onopen?.();
  }

  receive(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  drop(code = 1006): void {
    this.onclose?.({ code });
  }

  /** Sent messages of one type. */
  of(type: string): Record<string, unknown>[] {
    return this.sent.filter((message) => message.type === type);
  }
}

export const makeSocket = (url: string) => new FakeSocket(url) as unknown as WebSocket;
