import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";
import { layout, runsOf } from "./page-map";

const none = { tenant: null, adapters: [], age_s: null, pinned: false };
const map = {
  at: 1_800_000_000,
  boot_id: "b",
  total: 20,
  page_bytes: 1000,
  owners: [
    { ...none, kind: "free" as const },
    { ...none, kind: "adapter" as const, adapters: ["support@v1", "copy@v2"], age_s: 65 },
    { ...none, kind: "others" as const },
    { ...none, kind: "cached_prefix" as const, pinned: true },
  ],
  runs: [2, 3, 1, 2, 2, 1, 0, 13, 3, 1],
  kept: [1_799_999_900, 1_800_000_000],
};
const host = {
  name: "gpu1",
  state: "online",
  service: "serving",
  quarantine: null,
  boot_id: "b",
  model: "m",
  device: "cuda",
  running: 0,
  waiting: 0,
  tokens_per_second: 0,
  pool: { total: 20, free: 14, kv: 0, cached_prefix: 0, adapter: 6, reserved: 0 },
  page_bytes: 1000,
  adapters_total: 0,
  last_seen: null,
  share: null,
  adapters: [],
};

describe("the map of a host's pages", () => {
  it("is asked for when opened, names owners in a table, and goes back in time", async () => {
    const asked: string[] = [];
    server.use(
      http.get("/api/tenants/acme/hosts", () => HttpResponse.json([host])),
      http.get("/api/tenants/acme/hosts/gpu1/pages", ({ request }) => {
        asked.push(new URL(request.url).search);
        return HttpResponse.json(map);
      }),
    );
    const { user } = openConsole("/t/acme/hosts");
    await user.click(await screen.findByRole("button", { name: "Show the map" }));
    const table = await screen.findByRole("table", { name: "Pages by owner" });
    expect(
      within(table).getByRole("row", { name: /Adapter support@v1, copy@v2 2 2\.00 kB 10% idle for 1 min 5 s/ }),
    ).toBeVisible();
    expect(within(table).getByRole("row", { name: /Other tenants – 4/ })).toBeVisible();
    expect(within(table).getByRole("row", { name: /Cached prefix, pinned – 1/ })).toBeVisible();
    expect(screen.getByText("Pages with a dot are pinned")).toBeVisible();
    expect(asked).toEqual(["?ago_s=0"]);
    expect(screen.getByRole("slider", { name: "Now" })).toHaveAttribute("min", "-100");
  });

  it("has each run's first page", () => expect(runsOf(map).map(({ start }) => start)).toEqual([0, 3, 5, 6, 19]));

  it.each([
    [3000, 1000],
    [60_000, 1000],
    [60_000, 300],
  ])("%i pages fit into %i px", (pages, width) => {
    const { cell, columns, rows } = layout(pages, width);
    expect(columns * rows).toBeGreaterThanOrEqual(pages);
    expect(columns * cell).toBeLessThanOrEqual(width);
  });
});
