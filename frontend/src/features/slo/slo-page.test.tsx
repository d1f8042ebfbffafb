import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";
import { share } from "./slo-page";

const percentiles = { p50_ms: 80, p95_ms: 190, p99_ms: 420 };
const metric = {
  objective_ms: 200,
  measured: 1000,
  met: 985,
  attainment: 0.985,
  budget: { allowed: 10, missed: 15, left: -0.5 },
  percentiles,
  burn: [
    { window: "1h", measured: 100, missed: 14, rate: 14 },
    { window: "7d", measured: 0, missed: 0, rate: null },
  ],
  by_day: [
    { date: "2026-05-03", measured: 0, attainment: null },
    { date: "2026-05-04", measured: 1000, attainment: 0.985 },
  ],
};
const slo = {
  first_token_ms: 200,
  inter_token_ms: null,
  target: 0.99,
  weight: 2,
  days: 30,
  as_of: "2026-05-04T10:00:00Z",
  requests: 1000,
  failed: 3,
  mean_queue_ms: 12.5,
  first_token: metric,
  inter_token: { ...metric, objective_ms: null, met: null, attainment: null, budget: null },
};

describe("objectives", () => {
  it("shows attainment, the budget and each day", async () => {
    server.use(http.get("/api/tenants/acme/slo", () => HttpResponse.json(slo)));
    openConsole("/t/acme/slo");
    expect(await screen.findByText("98.5%")).toBeVisible();
    expect(screen.getByText("3 failed and count as missed")).toBeVisible();
    expect(screen.getByText("overdrawn")).toBeVisible();
    expect(screen.getByText("15 missed of 10 allowed")).toBeVisible();
    expect(screen.getByText("No objective set")).toBeVisible();
    expect(screen.getByRole("list", { name: "Time to first token by day" })).toHaveTextContent(
      "4 May: 98.5% of 1,000 requests, 1.5× the misses allowed",
    );
    expect(screen.getByText("14 missed of 100")).toBeVisible();
    expect(screen.getByText("14×")).toBeVisible();
  });

  it("is honest when nothing was measured", async () => {
    server.use(http.get("/api/tenants/acme/slo", () => HttpResponse.json({ ...slo, requests: 0 })));
    openConsole("/t/acme/slo");
    expect(await screen.findByText("No measurements in this time range")).toBeVisible();
    expect(
      screen.getByText(/has no measurements yet: the first token within 200 ms, for 99% of requests/),
    ).toBeVisible();
    expect(screen.queryByText("Attainment")).toBeNull();
  });

  it("claims no attainment where requests were only refused", async () => {
    const none = {
      ...metric,
      measured: 0,
      met: 0,
      attainment: null,
      budget: { allowed: 0, missed: 0, left: null },
      percentiles: { p50_ms: null, p95_ms: null, p99_ms: null },
    };
    server.use(
      http.get("/api/tenants/acme/slo", () =>
        HttpResponse.json({
          ...slo,
          requests: 0,
          first_token: none,
          inter_token: { ...none, objective_ms: null, met: null, budget: null },
        }),
      ),
      http.get("/api/tenants/acme/refusals/series", () => HttpResponse.json({ ...data.noRefusals, total: 4 })),
    );
    openConsole("/t/acme/slo");
    expect(await screen.findAllByText("nothing measured in this time")).not.toHaveLength(0);
    expect(screen.queryByText(/missed of 0 allowed/)).toBeNull();
    expect(screen.queryByText(/0 of 0/)).toBeNull();
  });

  it.each([
    [0.99999, "99.99%"],
    [1, "100%"],
    [0.985, "98.5%"],
    [0.57, "57%"],
  ])("%f is %s", (value, text) => expect(share(value)).toBe(text));
});
