// @vitest-environment node
import { beforeEach, describe, expect, it, vi } from "vitest";
import { FakeSocket, makeSocket } from "../../tests/fake-socket";
import { InferenceSocket } from "./inference-socket";
import { ReconnectingSocket } from "./reconnecting-socket";

const TIMINGS = { queue_ms: 1, adapter_load_ms: 0, first_token_ms: 5, prefill_ms: 4, decode_ms: 20 };
const done = (id: string, seq: number, reason = "stop") => ({
  type: "done",
  id,
  seq,
  finish_reason: [reason],
  usage: { prompt_tokens: 3, completion_tokens: 2 },
  timings: TIMINGS,
});
const delta = (id: string, seq: number, text: string) => ({ type: "delta", id, seq, choice: 0, text, tokens: 1 });

function listener() {
  const record = {
    text: "",
    onDone: vi.fn(),
    onError: vi.fn(),
    onStopped: vi.fn(),
    onText: (text: string) => void (record.text += text),
  };
  return record;
}

function connected() {
  const connection = new ReconnectingSocket({ url: () => "ws://x", fatalCodes: [4401], makeSocket, random: () => 0 });
  const socket = new InferenceSocket(connection);
  connection.open();
  FakeSocket.last.accept();
  FakeSocket.last.receive({ type: "hello", session: "s" });
  return socket;
}

describe("InferenceSocket", () => {
  beforeEach(() => {
    FakeSocket.opened = [];
    vi.useFakeTimers();
    return () => vi.useRealTimers();
  });

  it("keeps interleaved generations apart", () => {
    const socket = connected();
    const [a, b] = [listener(), listener()];
    socket.generate({ model: "a" }, a);
    socket.generate({ model: "b" }, b);
    const [one, two] = FakeSocket.last.of("generate").map(({ id }) => id as string) as [string, string];
    [delta(one, 1, "Ah"), delta(two, 1, "Be"), delta(one, 2, "oy"), done(two, 2), done(one, 3)].forEach((message) =>
      FakeSocket.last.receive(message),
    );
    expect([a.text, b.text]).toEqual(["Ahoy", "Be"]);
    expect(a.onDone).toHaveBeenCalledExactlyOnceWith(
      expect.objectContaining({ finishReason: "stop", timings: TIMINGS }),
    );
    expect(b.onDone).toHaveBeenCalledOnce();
  });

  it("opens by itself and sends when the server greets", () => {
    const socket = new InferenceSocket(new ReconnectingSocket({ url: () => "ws://x", makeSocket }));
    socket.generate({ model: "a" }, listener());
    FakeSocket.last.accept();
    FakeSocket.last.receive({ type: "hello", session: "s" });
    expect(FakeSocket.last.of("generate")).toHaveLength(1);
  });

  it("ignores what comes twice and stops at a gap", () => {
    const socket = connected();
    const a = listener();
    socket.generate({}, a);
    [delta("g1", 1, "x"), delta("g1", 1, "x"), delta("g1", 3, "z"), delta("g1", 4, "q")].forEach((message) =>
      FakeSocket.last.receive(message),
    );
    expect(a.text).toBe("x");
    expect(a.onError).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ code: "stream_gap" }));
    expect(FakeSocket.last.of("cancel")).toEqual([{ type: "cancel", id: "g1" }]);
  });

  it("cancels one, is silent about it, and still learns what it used", () => {
    const socket = connected();
    const [a, b] = [listener(), listener()];
    const stop = socket.generate({}, a);
    socket.generate({}, b);
    FakeSocket.last.receive(delta("g1", 1, "Hi"));
    stop();
    stop();
    [delta("g1", 2, " more"), done("g1", 3, "abort"), delta("g2", 1, "on")].forEach((message) =>
      FakeSocket.last.receive(message),
    );
    expect(a.text).toBe("Hi");
    expect(a.onDone).not.toHaveBeenCalled();
    expect(a.onStopped).toHaveBeenCalledOnce();
    expect(b.text).toBe("on");
    expect(FakeSocket.last.of("cancel")).toHaveLength(1);
  });

  it("hands the server's error on unchanged", () => {
    const socket = connected();
    const a = listener();
    socket.generate({}, a);
    const error = { code: "model_not_found", message: "No such model.", fix: "Choose another.", param: "model" };
    FakeSocket.last.receive({ type: "error", id: "g1", seq: 1, error });
    expect(a.onError).toHaveBeenCalledExactlyOnceWith(error);
  });

  function again(session = "t") {
    vi.advanceTimersByTime(1000);
    FakeSocket.last.accept();
    FakeSocket.last.receive({ type: "hello", session, resume_s: 30 });
  }

  it("goes on where the socket broke", () => {
    const socket = connected();
    const a = listener();
    socket.generate({}, a);
    expect(FakeSocket.last.of("generate")[0]).toMatchObject({ resume: true });
    [delta("g1", 1, "on"), delta("g1", 2, "ce")].forEach((message) => FakeSocket.last.receive(message));
    FakeSocket.last.drop();
    expect(a.onError).not.toHaveBeenCalled();
    again();
    expect(FakeSocket.last.of("resume")).toEqual([{ type: "resume", session: "s", after: { g1: 2 } }]);
    expect(FakeSocket.last.of("generate")).toEqual([]);
    [{ type: "resumed", ids: ["g1"], lost: [] }, delta("g1", 3, " more"), done("g1", 4)].forEach((message) =>
      FakeSocket.last.receive(message),
    );
    expect(a.text).toBe("once more");
    expect(a.onDone).toHaveBeenCalledOnce();
  });

  it("resumes each generation in the session where it began", () => {
    const socket = connected();
    socket.generate({}, listener());
    FakeSocket.last.receive(delta("g1", 1, "x"));
    FakeSocket.last.drop();
    again("t");
    socket.generate({}, listener());
    FakeSocket.last.receive(delta("g2", 1, "y"));
    FakeSocket.last.drop();
    again("u");
    expect(FakeSocket.last.of("resume")).toEqual([
      { type: "resume", session: "s", after: { g1: 1 } },
      { type: "resume", session: "t", after: { g2: 1 } },
    ]);
  });

  it("does not ask for what was stopped meanwhile, which ends it", () => {
    const socket = connected();
    const a = listener();
    const stop = socket.generate({}, a);
    FakeSocket.last.receive(delta("g1", 1, "x"));
    FakeSocket.last.drop();
    stop();
    again();
    expect(FakeSocket.last.of("resume")).toEqual([{ type: "resume", session: "s", after: {} }]);
    expect(a.onError).not.toHaveBeenCalled();
  });

  it("gives up what the server keeps no longer, and works again afterwards", () => {
    const socket = connected();
    const a = listener();
    socket.generate({}, a);
    FakeSocket.last.drop();
    vi.advanceTimersByTime(31_000);
    expect(a.onError).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ code: "connection_lost" }));
    const b = listener();
    socket.generate({}, b);
    again();
    expect(FakeSocket.last.of("resume")).toEqual([]);
    FakeSocket.last.receive(delta("g2", 1, "back"));
    expect(b.text).toBe("back");
  });

  it("says so when the rest is gone, and asks anew when nothing had come", () => {
    const socket = connected();
    const [a, b] = [listener(), listener()];
    socket.generate({}, a);
    socket.generate({}, b);
    FakeSocket.last.receive(delta("g1", 1, "x"));
    FakeSocket.last.drop();
    again();
    const lost = { code: "resume_lost", message: "Nothing is left.", fix: "Send it again." };
    FakeSocket.last.receive({ type: "resumed", session: "s", ids: [], lost: ["g1", "g2"], error: lost });
    expect(a.onError).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ code: "connection_lost" }));
    expect(b.onError).not.toHaveBeenCalled();
    expect(FakeSocket.last.of("generate").map(({ id }) => id)).toEqual(["g2"]);
  });

  it("says so when the server wants no more connections", () => {
    const socket = new InferenceSocket(new ReconnectingSocket({ url: () => "ws://x", fatalCodes: [4401], makeSocket }));
    const a = listener();
    socket.generate({}, a);
    FakeSocket.last.drop(4401);
    expect(a.onError).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ code: "not_connected" }));
  });

  it("leaves a server that is about to stop once nothing runs there", () => {
    const socket = connected();
    const a = listener();
    socket.generate({}, a);
    FakeSocket.last.receive({ type: "move" });
    expect(FakeSocket.last.closed).toBe(false);
    FakeSocket.last.receive(done("g1", 1));
    expect(a.onDone).toHaveBeenCalledOnce();
    expect(FakeSocket.last.closed).toBe(true);
    vi.advanceTimersByTime(400);
    expect(FakeSocket.opened).toHaveLength(2);
  });

  it("says why it was refused", () => {
    const socket = new InferenceSocket(new ReconnectingSocket({ url: () => "ws://x", fatalCodes: [4403], makeSocket }));
    const a = listener();
    socket.generate({}, a);
    FakeSocket.last.receive({ type: "error", error: { code: "role_not_allowed", message: "No.", fix: "Ask." } });
    FakeSocket.last.drop(4403);
    expect(a.onError).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ code: "role_not_allowed" }));
  });
});
