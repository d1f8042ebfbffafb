import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { SeriesCharts } from "./series-charts";
import { months } from "./statement-card";
import type { SeriesReport } from "@/api/types";
import { toMicros } from "@/features/operator/prices-card";
import { deviceTime, money } from "@/lib/format";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const tenant = "/api/tenants/acme";
const totals = {
  requests: 3,
  prompt_tokens: 2_000_000,
  cached_prompt_tokens: 0,
  completion_tokens: 500_000,
  device_us: 90_000_000,
  cost_micros: 700_000,
};

const requests: string[] = [];
const pages: URLSearchParams[] = [];

function serve() {
  requests.length = 0;
  pages.length = 0;
  const all = { ...data.series.totals, ...totals };
  const part = { ...all, requests_by_step: [] };
  const at = (minutes: number) => new Date(Date.parse("2026-05-04T10:00:00Z") + minutes * 60_000).toISOString();
  server.use(
    http.get(`${tenant}/series`, ({ request }) => {
      requests.push(new URL(request.url).search);
      const points = Array.from({ length: 10 }, (_, index) => ({
        ...data.series.totals,
        at: at(index),
        requests: index === 3 ? 3 : 0,
        prompt_tokens: index === 3 ? 2_000_000 : 0,
      }));
      const chosen = new URL(request.url).searchParams.get("base_model");
      const by_base_model = [
        { ...part, name: "llama" },
        { ...part, name: null },
      ].filter(({ name }) => !chosen || name === chosen);
      return HttpResponse.json({
        ...data.series,
        totals: all,
        points,
        by_base_model,
      });
    }),
    http.get(`${tenant}/series/parts`, ({ request }) => {
      const query = new URL(request.url).searchParams;
      pages.push(query);
      if (query.get("by") === "key") return HttpResponse.json([{ ...totals, name: null, prefix: null }]);
      return HttpResponse.json([{ ...totals, name: "support" }], { headers: { "X-Total-Count": "243" } });
    }),
    http.get(`${tenant}/statement`, ({ request }) =>
      HttpResponse.json({
        month: new URL(request.url).searchParams.get("month"),
        currency: "USD",
        as_of: data.adapter.created_at,
        complete: false,
        total_micros: 700_001,
        lines: [
          {
            kind: "input",
            base_model: null,
            first: "2026-05-01",
            last: "2026-05-31",
            price_version: 1,
            unit_price_micros: 200_000,
            quantity: 2_000_000,
            amount_micros: 400_000,
          },
          {
            kind: "output",
            base_model: "llama",
            first: "2026-05-01",
            last: "2026-05-31",
            price_version: 2,
            unit_price_micros: 100_000,
            quantity: 500_000,
            amount_micros: 50_001,
          },
          {
            kind: "storage",
            base_model: null,
            first: "2028-02-01",
            last: "2028-02-29",
            price_version: 1,
            unit_price_micros: 250_000,
            quantity: 29 * 24 * 1e9,
            amount_micros: 250_000,
          },
        ],
      }),
    ),
    http.get(`${tenant}/exports`, () => HttpResponse.json([])),
    http.get(`${tenant}/export-schedules`, () => HttpResponse.json([])),
  );
}

describe("usage", () => {
  it("reaches every adapter, by pages, by its name and by the figure it is largest in", async () => {
    serve();
    const { user, router } = openConsole("/t/acme/usage");
    expect(await screen.findByText("243 adapters with requests in this time")).toBeVisible();
    const nav = screen.getByRole("navigation", { name: "Pages of adapters" });
    expect(nav).toHaveTextContent("1–25 of 243");
    await user.click(within(nav).getByRole("button", { name: "Next" }));
    await waitFor(() => expect(pages.at(-1)!.get("offset")).toBe("25"));
    expect(router.state.location.search).toEqual({ adapter: { page: 1 } });
    await user.click(
      within(screen.getByRole("table", { name: "Usage by adapter" })).getByRole("button", { name: "GPU time" }),
    );
    await user.type(screen.getByRole("searchbox", { name: "Search adapters" }), "supp");
    await waitFor(() => expect(pages.at(-1)!.get("search")).toBe("supp"));
    expect(pages.at(-1)!.get("sort")).toBe("device_us");
    expect(router.state.location.search).toEqual({ adapter: { q: "supp", sort: "device_us" } });
  });

  it("shows what was refused beside what was served, by code", async () => {
    serve();
    const starts = ["2026-05-04T10:00:00Z", "2026-05-04T10:01:00Z"];
    const by_code = [
      { code: "rate_limit_exceeded", status: 429, count: 7, by_step: [0, 7] },
      { code: "no_ready_host", status: 503, count: 2, by_step: [2, 0] },
    ];
    server.use(
      http.get(`${tenant}/refusals/series`, () =>
        HttpResponse.json({ ...data.noRefusals, step_s: 60, starts, total: 9, failed: 2, by_code }),
      ),
    );
    openConsole("/t/acme/usage");
    const card = await screen.findByLabelText("Refused");
    expect(card).toHaveTextContent("9 requests, 2 of them because of server errors (5xx)");
    expect(within(card).getByRole("row", { name: "rate_limit_exceeded 429 7 78%" })).toBeInTheDocument();
    expect(screen.getByText("9 more were refused")).toBeInTheDocument();
    expect(await within(card).findByRole("slider", { name: /By code/ })).toBeInTheDocument();
    expect(await screen.findByText(/^refused$/)).toBeInTheDocument();
  });

  it("shows no cost where none of the requests had a price, and does not draw it as nothing", async () => {
    const points = [0, 1].map((index) => ({
      ...data.series.totals,
      at: `2026-05-0${4 + index}T00:00:00Z`,
      requests: 3,
      cost_micros: index ? 700_000 : null,
    }));
    const part = { ...data.series.totals, ...totals, name: "old", requests_by_step: [], cost_micros: null };
    const report = { ...data.series, step_s: 86_400, totals: part, points, currency: "USD" };
    render(<SeriesCharts report={report as SeriesReport} show={["cost"]} onZoom={() => {}} onZoomOut={() => {}} />);
    const chart = screen.getByRole("slider", { name: /Cost/ });
    chart.focus();
    await userEvent.keyboard("{ArrowRight}");
    expect(chart).toHaveAttribute("aria-valuetext", expect.stringContaining("cost –"));
    await userEvent.keyboard("{ArrowRight}");
    expect(chart).toHaveAttribute("aria-valuetext", expect.stringContaining("cost $0.70"));
    expect(money(null, "USD")).toBe("–");
  });

  it("lists each week that is exported after an outage of the workers, the last ones first", async () => {
    serve();
    const weeks = ["2026-04-27", "2026-04-20", "2026-04-13"].map((first, index) => ({
      id: `e${index}`,
      first,
      last: new Date(Date.parse(first) + 6 * 86_400_000).toISOString().slice(0, 10),
      grain: "day",
      state: ["queued", "ready", "failed"][index],
      lines: 1234,
      bytes: 5678,
      created_at: "2026-05-04T09:00:00Z",
      ready_at: null,
    }));
    server.use(http.get(`${tenant}/exports`, () => HttpResponse.json(weeks)));
    openConsole("/t/acme/usage");
    const rows = within(await screen.findByRole("table", { name: "Exports" }))
      .getAllByRole("row")
      .slice(1);
    expect(rows.map((row) => row.textContent)).toEqual([
      expect.stringMatching(/^27 Apr – 3 May.*Queued–/),
      expect.stringMatching(/^20 Apr – 26 Apr.*Ready1,2345\.68 kB/),
      expect.stringMatching(/^13 Apr – 19 Apr.*Failed–/),
    ]);
  });

  it("shows what was used, what it cost, and the statement of the month", async () => {
    serve();
    openConsole("/t/acme/usage?month=2028-02");
    const table = await screen.findByRole("table", { name: "Usage by adapter" });
    expect(within(table).getByRole("row", { name: /support 3 2,000,000 500,000 1\.5 min \$0\.70/ })).toBeVisible();
    const bases = await screen.findByRole("table", { name: "Usage by base model" });
    expect(within(bases).getByRole("row", { name: /^llama/ })).toBeVisible();
    expect(within(bases).getByRole("row", { name: /^not recorded/ })).toBeVisible();
    expect(await screen.findByTestId("statement-total")).toHaveTextContent("$0.70");
    expect(screen.getByText("so far")).toBeVisible();
    expect(screen.getByRole("row", { name: /^Output tokens ?on llama/ })).toBeVisible();
    expect(screen.getByRole("row", { name: /^Adapter storage/ })).toHaveTextContent("1.00 GB-months");
    expect(screen.getByRole("link", { name: "Download CSV" })).toHaveAttribute("href", `${tenant}/usage.csv?days=31`);
  });

  it("shows one base model alone, and keeps it in the address", async () => {
    serve();
    const { user, router } = openConsole("/t/acme/usage?base_model=gone");
    const select = await screen.findByRole("combobox", { name: "Base model" });
    expect(select).toHaveValue("gone");
    expect(requests).toContain("?range=30d&base_model=gone");
    await waitFor(() => expect(within(select).getByRole("option", { name: "llama" })).toBeInTheDocument());
    await user.selectOptions(select, "llama");
    expect(router.state.location.search).toEqual({ base_model: "llama" });
    await waitFor(() => expect(screen.queryByRole("table", { name: "Usage by base model" })).toBeNull());
    expect(screen.getByRole("link", { name: "Download CSV" })).toHaveAttribute(
      "href",
      `${tenant}/usage.csv?days=31&base_model=llama`,
    );
    await user.selectOptions(select, "");
    expect(router.state.location.search).toEqual({});
  });

  it("reads steps by keyboard, zooms, and keeps the range in the address", async () => {
    serve();
    const { user, router } = openConsole("/t/acme/usage?range=1h");
    const chart = await screen.findByRole("slider", { name: /^Tokens/ });
    expect(requests[0]).toBe("?range=1h");
    chart.focus();
    await user.keyboard("{Home}{ArrowRight}{ArrowRight}{ArrowRight}");
    expect(chart).toHaveAttribute("aria-valuetext", expect.stringContaining("prompt 2M, completion 0"));
    await user.keyboard("+");
    expect(await screen.findByTestId("zoom-out")).toBeVisible();
    expect(router.state.location.search).toEqual({
      range: "1h",
      since: "2026-05-04T10:01:00.000Z",
      until: "2026-05-04T10:06:00.000Z",
    });
    await user.click(screen.getByTestId("zoom-out"));
    expect(router.state.location.search).toEqual({ range: "1h" });
    await user.click(screen.getByRole("link", { name: "Hosts & GPUs" }));
    expect(router.state.location.search).toEqual({ range: "1h" });
  });

  it("hides the operator's page from others", async () => {
    serve();
    openConsole("/t/acme/usage");
    await screen.findByTestId("statement-total");
    expect(screen.queryByRole("link", { name: "Platform usage" })).toBeNull();
    expect(screen.queryByRole("link", { name: "Webhooks" })).toBeNull();
  });
});

describe("money and time", () => {
  it.each([
    [0, "$0.00"],
    [1, "$0.000001"],
    [9_100, "$0.0091"],
    [150_000, "$0.15"],
    [12_345_678_900, "$12,345.68"],
  ])("%i millionths are %s", (micros, text) => expect(money(micros, "USD")).toBe(text));

  it.each([
    ["0.15", 150_000],
    ["3", 3_000_000],
    ["0.000001", 1],
    ["12.5", 12_500_000],
  ])("%s is %i millionths", (text, micros) => expect(toMicros(text)).toBe(micros));

  it("names months in UTC", () =>
    expect(months(new Date("2026-01-01T00:30:00+02:00")).slice(0, 2)).toEqual(["2025-12", "2025-11"]));
  it("says no price where there is none", () => expect(money(5, null)).toBe("–"));
  it.each([
    [84_000, "84 ms"],
    [90_000_000, "1.5 min"],
    [36_000_000_000, "10 h"],
  ])("%i us is %s", (us, text) => expect(deviceTime(us)).toBe(text));
});
