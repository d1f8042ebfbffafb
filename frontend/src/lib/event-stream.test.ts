// @vitest-environment node
import { beforeEach, describe, expect, it, vi } from "vitest";
import { FakeSocket, makeSocket } from "../../tests/fake-socket";
import { EventStream } from "./event-stream";

const event = (seq: number) => ({ type: "event", seq, event: "usage.tick", data: {} });

function open() {
  const seen: number[] = [];
  const onLost = vi.fn();
  const stream = new EventStream({ url: () => "ws://x", makeSocket, random: () => 0 }, { onEvent: ({ seq }) => seen.push(seq), onLost });
  stream.open();
  FakeSocket.last.accept();
  FakeSocket.last.say({ type: "hello", seq: 10 });
  return { stream, seen, onLost };
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
    [11, 12, 12, 11, 13].forEach((seq) => FakeSocket.last.say(event(seq)));
    expect(seen).toEqual([11, 12, 13]);
  });

  it("asks for skipped events and holds back later ones", () => {
    const { seen, onLost } = open();
    FakeSocket.last.say(event(11));
    FakeSocket.last.say(event(14));
    expect(seen).toEqual([11]);
    expect(FakeSocket.last.of("replay")).toEqual([{ type: "replay", after: 11 }]);
    [12, 13, 14].forEach((seq) => FakeSocket.last.say(event(seq)));
    expect(seen).toEqual([11, 12, 13, 14]);
    vi.advanceTimersByTime(10_000);
    expect(onLost).not.toHaveBeenCalled();
  });

  it("gives a hole up after a while and goes on", () => {
    const { seen, onLost } = open();
    FakeSocket.last.say(event(13));
    vi.advanceTimersByTime(3000);
    expect(onLost).toHaveBeenCalledOnce();
    expect(seen).toEqual([13]);
    FakeSocket.last.say(event(14));
    expect(seen).toEqual([13, 14]);
  });

  it("catches up after a reconnect", () => {
    const { seen, onLost } = open();
    FakeSocket.last.say(event(11));
    reconnect();
    FakeSocket.last.say({ type: "hello", seq: 13 });
    expect(FakeSocket.last.of("replay")).toEqual([{ type: "replay", after: 11 }]);
    [12, 13].forEach((seq) => FakeSocket.last.say(event(seq)));
    expect(seen).toEqual([11, 12, 13]);
    expect(onLost).not.toHaveBeenCalled();
  });

  it("asks for nothing when nothing was missed", () => {
    const { onLost } = open();
    reconnect();
    FakeSocket.last.say({ type: "hello", seq: 10 });
    expect(FakeSocket.last.of("replay")).toEqual([]);
    expect(onLost).not.toHaveBeenCalled();
  });

  it("reads everything again when the server no longer remembers", () => {
    const { seen, onLost } = open();
    reconnect();
    FakeSocket.last.say({ type: "hello", seq: 900 });
    FakeSocket.last.say({ type: "reset", seq: 900 });
    expect(onLost).toHaveBeenCalledOnce();
    FakeSocket.last.say(event(901));
    expect(seen).toEqual([901]);
  });

  it("says when the server refuses it", () => {
    const onRefused = vi.fn();
    new EventStream({ url: () => "ws://x", makeSocket, fatalCodes: [4401] }, { onEvent: () => {}, onLost: () => {}, onRefused }).open();
    FakeSocket.last.drop(4401);
    expect(onRefused).toHaveBeenCalledOnce();
  });

  it("reads everything again when the numbers start anew", () => {
    const { seen, onLost } = open();
    reconnect();
    FakeSocket.last.say({ type: "hello", seq: 2 });
    expect(onLost).toHaveBeenCalledOnce();
    FakeSocket.last.say(event(3));
    expect(seen).toEqual([3]);
  });
});
