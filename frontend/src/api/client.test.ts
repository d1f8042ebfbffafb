import { http, HttpResponse } from "msw";
import { expect, it, vi } from "vitest";
import { server } from "../../tests/server";
import { request } from "./client";

it.each(["<html>Sign in to the network</html>", '{"cut": '])(
  "says that an answer such as %j cannot be read",
  (text) => {
    server.use(http.get("/api/session", () => new HttpResponse(text)));
    return expect(request("GET /api/session")).rejects.toMatchObject({ code: "unreadable_answer", status: 0 });
  },
);

it("gives up a read without an answer, but no write", async () => {
  server.use(
    http.get("/api/session", () => HttpResponse.json({})),
    http.delete("/api/session", () => HttpResponse.json({})),
  );
  const timeout = vi.spyOn(AbortSignal, "timeout").mockReturnValue(AbortSignal.abort());
  await expect(request("GET /api/session")).rejects.toMatchObject({ code: "unreachable" });
  await expect(request("DELETE /api/session")).resolves.toEqual({});
  expect(timeout).toHaveBeenCalledExactlyOnceWith(60_000);
  timeout.mockRestore();
});
