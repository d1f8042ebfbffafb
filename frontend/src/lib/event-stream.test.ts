// @vitest-environment node
import { beforeEach, describe, expect, it, vi } from "vitest";
import { FakeSocket, makeSocket } from "../../tests/fake-socket";
import { EventStream } from "./event-stream";
import { InferenceSocket } from "./inference-socket";
import { ReconnectingSocket } from "./reconnecting-socket";

const event = (seq: number) => ({ type: "event", seq, event: "usage.tick", data: {} });

function open() {
  const seen: number[] = [];
  const onLost = vi.fn();
  const socket = new ReconnectingSocket({ url: () => "ws://x", makeSocket, random: () => 0 });
  const stream = new EventStream(socket, { onEvent: ({ seq }) => seen.push(seq), onLost });
  const generations = new InferenceSocket(socket);
  socket.open();
  FakeSocket.last.accept();
  FakeSocket.last.receive({ type: "hello", seq: 10 });
  return { stream, generations, seen, onLost };
}

function reconnect() {
  FakeSocket.last.drop();
  vi.advanceTimersByTime(1000);
  FakeSocket.last.accept();
}

describe("EventStream", () => {
  beforeEach(() => {
    FakeSocket.opened = [];
    vi.useFakeTimers();
    return () => vi.useRealTimers();
  });

  it("delivers in order and once", () => {
    const { seen } = open();
    [11, 12, 12, 11, 13].forEach((seq) => FakeSocket.last.receive(event(seq)));
    expect(seen).toEqual([11, 12, 13]);
  });

  it("asks for skipped events and holds back later ones", () => {
    const { seen, onLost } = open();
    FakeSocket.last.receive(event(11));
    FakeSocket.last.receive(event(14));
    expect(seen).toEqual([11]);
    expect(FakeSocket.last.of("replay")).toEqual([{ type: "replay", after: 11 }]);
    [12, 13, 14].forEach((seq) => FakeSocket.last.receive(event(seq)));
    expect(seen).toEqual([11, 12, 13, 14]);
    vi.advanceTimersByTime(10_000);
    expect(onLost).not.toHaveBeenCalled();
  });

  it("gives a hole up after a while and goes on", () => {
    const { seen, onLost } = open();
    FakeSocket.last.receive(event(13));
    vi.advanceTimersByTime(3000);
    expect(onLost).toHaveBeenCalledOnce();
    expect(seen).toEqual([13]);
    FakeSocket.last.receive(event(14));
    expect(seen).toEqual([13, 14]);
  });

  it("catches up after a reconnect", () => {
    const { seen, onLost } = open();
    FakeSocket.last.receive(event(11));
    reconnect();
    FakeSocket.last.receive({ type: "hello", seq: 13 });
    expect(FakeSocket.last.of("replay")).toEqual([{ type: "replay", after: 11 }]);
    [12, 13].forEach((seq) => FakeSocket.last.receive(event(seq)));
    expect(seen).toEqual([11, 12, 13]);
    expect(onLost).not.toHaveBeenCalled();
  });

  it("asks for nothing when nothing was missed", () => {
    const { onLost } = open();
    reconnect();
    FakeSocket.last.receive({ type: "hello", seq: 10 });
    expect(FakeSocket.last.of("replay")).toEqual([]);
    expect(onLost).not.toHaveBeenCalled();
  });

  it("reads everything again when the server no longer remembers", () => {
    const { seen, onLost } = open();
    reconnect();
    FakeSocket.last.receive({ type: "hello", seq: 900 });
    FakeSocket.last.receive({ type: "reset", seq: 900 });
    expect(onLost).toHaveBeenCalledOnce();
    FakeSocket.last.receive(event(901));
    expect(seen).toEqual([901]);
  });

  it("shares its socket with an answer, and both go on after a break without a loss or a double", () => {
    const { generations, seen, onLost } = open();
    FakeSocket.last.receive({ type: "hello", seq: 10, session: "s", resume_s: 30 });
    const delta = (seq: number, text: string) => ({ type: "delta", id: "g1", seq, choice: 0, text, tokens: 1 });
    let [text, done] = ["", 0];
    generations.generate({}, { onText: (more) => (text += more), onDone: () => done++, onError: () => {} });
    [event(11), delta(1, "one "), event(12), delta(2, "socket ")].forEach((message) =>
      FakeSocket.last.receive(message),
    );
    reconnect();
    expect(FakeSocket.opened).toHaveLength(2);
    FakeSocket.last.receive({ type: "hello", seq: 14, session: "t", resume_s: 30 });
    expect(FakeSocket.last.of("replay")).toEqual([{ type: "replay", after: 12 }]);
    expect(FakeSocket.last.of("resume")).toEqual([{ type: "resume", session: "s", after: { g1: 2 } }]);
    const ended = { type: "done", id: "g1", seq: 5, finish_reason: ["stop"], usage: {}, timings: {} };
    [event(13), delta(3, "for "), event(14), delta(4, "both"), ended, event(15)].forEach((message) =>
      FakeSocket.last.receive(message),
    );
    expect(text).toBe("one socket for both");
    expect(seen).toEqual([11, 12, 13, 14, 15]);
    expect(done).toBe(1);
    expect(onLost).not.toHaveBeenCalled();
  });

  it("says when the server refuses it", () => {
    const onRefused = vi.fn();
    const socket = new ReconnectingSocket({ url: () => "ws://x", makeSocket, fatalCodes: [4401] });
    new EventStream(socket, { onEvent: () => {}, onLost: () => {}, onRefused });
    socket.open();
    FakeSocket.last.drop(4401);
    expect(onRefused).toHaveBeenCalledOnce();
  });

  it("reads everything again when the numbers start anew", () => {
    const { seen, onLost } = open();
    reconnect();
    FakeSocket.last.receive({ type: "hello", seq: 2 });
    expect(onLost).toHaveBeenCalledOnce();
    FakeSocket.last.receive(event(3));
    expect(seen).toEqual([3]);
  });
});
