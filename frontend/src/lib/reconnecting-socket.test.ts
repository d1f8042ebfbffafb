import { beforeEach, describe, expect, it, vi } from "vitest";
import { FakeSocket, makeSocket } from "../../tests/fake-socket";
import { backoff, ReconnectingSocket, ConnectionRefusedError } from "./reconnecting-socket";

const links: ReconnectingSocket[] = [];

function open() {
  const states: string[] = [];
  const link = new ReconnectingSocket({ url: () => "ws://x", fatalCodes: [4401], makeSocket, random: () => 1 });
  link.subscribe(() => states.push(link.state));
  links.push(link);
  link.open();
  return { link, states };
}

describe("ReconnectingSocket", () => {
  beforeEach(() => {
    FakeSocket.opened = [];
    vi.useFakeTimers();
    return () => {
      links.splice(0).forEach((link) => link.close());
      vi.useRealTimers();
    };
  });

  it("waits longer after each failure, within a ceiling and with jitter", () => {
    expect([0, 1, 2, 3].map((attempt) => backoff(attempt, () => 1))).toEqual([400, 800, 1600, 3200]);
    expect(backoff(20, () => 1)).toBe(15_000);
    expect(backoff(3, () => 0)).toBe(1600);
  });

  it("comes back and says so", () => {
    const { states } = open();
    FakeSocket.last.accept();
    FakeSocket.last.drop();
    vi.advanceTimersByTime(400);
    FakeSocket.last.accept();
    expect(states).toEqual(["connecting", "open", "reconnecting", "open"]);
    expect(FakeSocket.opened).toHaveLength(2);
  });

  it("starts the back-off anew only once the server has spoken", () => {
    open();
    const dropAfter = (wait: number) => {
      FakeSocket.last.accept();
      FakeSocket.last.drop();
      vi.advanceTimersByTime(wait - 1);
      const before = FakeSocket.opened.length;
      vi.advanceTimersByTime(1);
      expect(FakeSocket.opened.length).toBe(before + 1);
    };
    dropAfter(400);
    dropAfter(800);
    FakeSocket.last.accept();
    FakeSocket.last.receive({ type: "hello" });
    FakeSocket.last.drop();
    vi.advanceTimersByTime(400);
    expect(FakeSocket.opened).toHaveLength(4);
  });

  it("stays away when the server says so", () => {
    const { link } = open();
    FakeSocket.last.drop(4401);
    vi.advanceTimersByTime(60_000);
    expect(link.state).toBe("closed");
    expect(FakeSocket.opened).toHaveLength(1);
  });

  it("pings, and takes long silence for a fall", () => {
    const { link } = open();
    FakeSocket.last.accept();
    vi.advanceTimersByTime(20_000);
    expect(FakeSocket.last.of("ping")).toHaveLength(1);
    FakeSocket.last.receive({ type: "pong" });
    vi.advanceTimersByTime(40_000);
    expect(link.state).toBe("open");
    vi.advanceTimersByTime(20_000);
    expect(link.state).not.toBe("open");
  });

  it("tries at once when the network is back", () => {
    open();
    FakeSocket.last.drop();
    dispatchEvent(new Event("online"));
    expect(FakeSocket.opened).toHaveLength(2);
  });

  it("is open only once its authenticate is sent, with a new one for each connection", async () => {
    let count = 0;
    const authenticate = () => Promise.resolve({ type: "auth", ticket: `t${++count}` });
    const link = new ReconnectingSocket({ url: () => "ws://x", authenticate, makeSocket, random: () => 0 });
    links.push(link);
    link.open();
    FakeSocket.last.accept();
    expect(link.state).toBe("connecting");
    await vi.advanceTimersByTimeAsync(0);
    expect(link.state).toBe("open");
    link.reconnect();
    await vi.advanceTimersByTimeAsync(400);
    FakeSocket.last.accept();
    await vi.advanceTimersByTimeAsync(0);
    expect(FakeSocket.opened.map(({ sent }) => sent[0])).toEqual([
      { type: "auth", ticket: "t1" },
      { type: "auth", ticket: "t2" },
    ]);
    expect(FakeSocket.opened[0]!.closed).toBe(true);
  });

  it.each([
    [new ConnectionRefusedError(4401), "closed"],
    [new Error("offline"), "reconnecting"],
  ])("after %s it is %s", async (cause, state) => {
    const authenticate = () => Promise.reject(cause);
    const link = new ReconnectingSocket({ url: () => "ws://x", authenticate, fatalCodes: [4401], makeSocket });
    links.push(link);
    link.open();
    FakeSocket.last.accept();
    await vi.advanceTimersByTimeAsync(0);
    expect(link.state).toBe(state);
  });

  it("ends for good when closed", () => {
    const { link } = open();
    FakeSocket.last.accept();
    link.close();
    expect(FakeSocket.last.closed).toBe(true);
    vi.advanceTimersByTime(60_000);
    expect(FakeSocket.opened).toHaveLength(1);
    expect(link.send({ type: "ping" })).toBe(false);
  });
});
