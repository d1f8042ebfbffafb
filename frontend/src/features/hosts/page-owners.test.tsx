import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";
import { pagesByOwner } from "./page-owners";

const none = { tenant: null, adapters: [], age_s: null, pinned: false };
const pages = {
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
  experts: null,
  pool: { total: 20, free: 14, kv: 0, cached_prefix: 0, adapter: 6, reserved: 0, state: 0 },
  page_bytes: 1000,
  adapters_total: 0,
  last_seen: null,
  share: null,
  adapters: [],
};

it("reads the owners of a host's pages when opened, and lists them", async () => {
  let reads = 0;
  server.use(
    http.get("/api/tenants/acme/hosts", () => HttpResponse.json([host])),
    http.get("/api/tenants/acme/hosts/gpu1/pages", () => {
      reads += 1;
      return HttpResponse.json(pages);
    }),
  );
  const { user } = openConsole("/t/acme/hosts");
  const button = await screen.findByRole("button", { name: "Show owners" });
  expect(reads).toBe(0);
  await user.click(button);
  const table = await screen.findByRole("table", { name: "Pages by owner" });
  expect(
    within(table).getByRole("row", { name: /Adapter support@v1, copy@v2 2 2\.00 kB 10% idle for 1 min 5 s/ }),
  ).toBeVisible();
  expect(within(table).getByRole("row", { name: /Other tenants – 4/ })).toBeVisible();
  expect(within(table).getByRole("row", { name: /Cached prefix, pinned – 1/ })).toBeVisible();
});

it("adds up the runs of each owner, the largest first", () =>
  expect(pagesByOwner(pages).map((row) => row.pages)).toEqual([13, 4, 2, 1]));
