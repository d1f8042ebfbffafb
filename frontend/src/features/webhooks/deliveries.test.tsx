import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Delivery } from "@/api/types";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const at = "2026-07-01T10:00:00Z";
const hook = {
  id: "hook-1",
  url: "https://a.example/hook",
  description: "",
  events: [],
  active: true,
  failures: 0,
  rests_until: null,
  created_at: at,
  created_by: null,
};
const tried = (status: number | null, error = "") => ({ at, duration_ms: 12, status, error });
const delivery = (id: string, state: Delivery["state"], attempts: number, log: Delivery["log"]): Delivery => ({
  id,
  state,
  attempts,
  log,
  event: id,
  type: "test",
  payload: {},
  created_at: at,
  next_attempt_at: at,
  delivered_at: state === "delivered" ? at : null,
});

it("says what happened to each message", async () => {
  server.use(
    http.get("/api/tenants/acme/webhooks", () => HttpResponse.json([hook])),
    http.get("/api/tenants/acme/webhooks/hook-1/deliveries", () =>
      HttpResponse.json([
        delivery("1", "pending", 0, []),
        delivery("2", "pending", 2, [tried(500), tried(500)]),
        delivery("3", "delivered", 1, [tried(204)]),
        delivery("4", "failed", 8, [tried(null, "The connection was refused.")]),
      ]),
    ),
  );
  openConsole("/t/acme/webhooks");
  const rows = within(await screen.findByRole("list", { name: "Deliveries" })).getAllByRole("button");
  expect(rows.map(({ textContent }) => textContent)).toEqual([
    expect.stringContaining("testSendingnot sent yet"),
    expect.stringContaining("testRetryinganswered HTTP 500 in 12 ms (attempt 2)"),
    expect.stringContaining("testDeliveredanswered HTTP 204 in 12 ms"),
    expect.stringContaining("testFailedThe connection was refused. (attempt 8)"),
  ]);
});
