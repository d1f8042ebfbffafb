import { afterEach, expect, it, vi } from "vitest";
import { request } from "./client";

const read = () => request("GET /api/session");
const fetch = vi.spyOn(globalThis, "fetch");

afterEach(() => void fetch.mockReset());

it.each(["<html>Sign in to the network</html>", '{"cut": '])(
  "says that an answer such as %j cannot be read",
  (text) => {
    fetch.mockResolvedValue(new Response(text));
    return expect(read()).rejects.toMatchObject({ code: "unreadable_answer", status: 0 });
  },
);

it("gives up a read without an answer, but no write", async () => {
  const timeout = vi.spyOn(AbortSignal, "timeout").mockReturnValue(AbortSignal.abort());
  fetch.mockImplementation((_, options) =>
    options?.signal?.aborted ? Promise.reject(new DOMException()) : Promise.resolve(Response.json({})),
  );
  await expect(read()).rejects.toMatchObject({ code: "unreachable" });
  expect(timeout).toHaveBeenCalledExactlyOnceWith(60_000);
  await expect(request("DELETE /api/session")).resolves.toEqual({});
});
