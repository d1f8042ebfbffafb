import { cleanup, screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import type { Host } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const pool = { total: 100, free: 70, kv: 20, cached_prefix: 5, adapter: 4, reserved: 1, state: 0 };
const host = (number: number, change: Partial<Host> = {}): Host => ({
  name: `gpu-${String(number).padStart(2, "0")}`,
  state: "online",
  service: "serving",
  quarantine: null,
  boot_id: "b",
  model: number % 2 ? "llama" : "qwen",
  device: "NVIDIA H200",
  running: number,
  waiting: 0,
  tokens_per_second: 10,
  experts: null,
  pool,
  page_bytes: 65536,
  last_seen: "2026-05-04T10:00:00Z",
  adapters: [],
  adapters_total: 0,
  ...change,
});

describe("many hosts", () => {
  const requests: string[] = [];

  beforeEach(() => {
    requests.length = 0;
    const hosts = Array.from({ length: 60 }, (_, number) =>
      host(number, number % 10 === 9 ? { state: "offline" } : {}),
    );
    hosts[58] = host(58, { pool: { ...pool, total: 0, free: 0, kv: 0, cached_prefix: 0, adapter: 0, reserved: 0 } });
    server.use(
      http.get("/api/tenants/acme/hosts", () => HttpResponse.json(hosts)),
      http.get("/api/tenants/acme/overview", () => HttpResponse.json({ ...data.overview, hosts })),
      http.get("/api/tenants/acme/series", ({ request }) => {
        requests.push(new URL(request.url).searchParams.get("host") ?? "");
        return new Promise<never>(() => undefined);
      }),
    );
  });

  it("have a line each, and only the opened one is asked about", async () => {
    const { user } = openConsole("/t/acme/hosts");
    expect(await screen.findByText("60 hosts, 54 in use")).toBeVisible();
    expect(screen.getAllByRole("listitem", { name: /^Host gpu-/ })).toHaveLength(50);
    expect(requests).toEqual([]);
    const row = within(screen.getByRole("listitem", { name: "Host gpu-03" }));
    const button = row.getByRole("button", { expanded: false });
    await user.click(button);
    expect(row.getByRole("region", { name: "Details of gpu-03" })).toHaveTextContent("Page pool");
    await waitFor(() => expect(requests).toEqual(["gpu-03"]));
    await user.click(button);
    expect(row.queryByRole("region")).not.toBeInTheDocument();
    expect(button).toHaveFocus();
  });

  it("are found by name and model, and by whether they are used", async () => {
    const { user } = openConsole("/t/acme/hosts");
    await user.click(await screen.findByRole("radio", { name: "Not in use" }));
    expect(await screen.findByText("6 of 60 hosts")).toBeVisible();
    await user.type(screen.getByRole("searchbox", { name: "Search by name, model or device" }), "GPU-19");
    expect(await screen.findByText("1 of 60 hosts")).toBeVisible();
    expect(screen.getByRole("listitem", { name: "Host gpu-19" })).toHaveTextContent("offline");
    await user.type(screen.getByRole("searchbox"), "x");
    await user.click(await screen.findByRole("button", { name: "Show all hosts" }));
    expect(await screen.findByText("60 hosts, 54 in use")).toBeVisible();
  });

  it("that an address opens is open, and a page beyond the last is the last", async () => {
    const { user } = openConsole("/t/acme/hosts?host=gpu-58");
    expect(await screen.findByRole("region", { name: "Details of gpu-58" })).toBeVisible();
    expect(screen.getByText("51–60 of 60")).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Previous" }));
    expect(await screen.findByText("1–50 of 60")).toBeVisible();
    cleanup();
    openConsole("/t/acme/hosts?page=7");
    expect(await screen.findByText("51–60 of 60")).toBeVisible();
  });

  it("are five on the overview, the busiest, with the way to those not in use", async () => {
    openConsole("/t/acme");
    expect(await screen.findByText("gpu-58")).toBeVisible();
    expect(screen.getAllByText("no pool yet")).toHaveLength(1);
    expect(screen.getByText(/The 5 busiest of 60\./)).toBeVisible();
    expect(screen.queryByText("gpu-59")).not.toBeInTheDocument(); // offline
    expect(screen.getByRole("link", { name: "6 are not in use" })).toHaveAttribute("href", "/t/acme/hosts?use=unused");
  });

  it("show where the experts of adapters lie, if the model has any", async () => {
    const experts = {
      resident: 620, total: 1000, promotions: 9, demotions: 1, pairs: 5000, host_pairs: 400, recent_pairs: 800,
      recent_host_pairs: 96, setting: "auto",
    }; // prettier-ignore
    const hosts = [
      { ...host(1), experts },
      { ...host(2), experts: { ...experts, total: 0, recent_pairs: 0 } },
      { ...host(3), experts: { ...experts, setting: "full" } },
    ];
    server.use(http.get("/api/tenants/acme/hosts", () => HttpResponse.json(hosts)));
    openConsole("/t/acme/hosts");
    const [auto, unused, full] = await screen.findAllByLabelText(/^Host gpu-/);
    const words = [
      /pool62% 620 of 1,000Read from host memory, last minute12% of 800 pairs.*residencyauto/,
      /pool– .*minute– of 0 pairs/,
      /poolAll Read from host memory, last minuteNone Expert residencyfull/,
    ];
    [auto, unused, full].forEach((card, index) => expect(card).toHaveTextContent(words[index] ?? ""));
    expect(screen.getAllByText("Expert residency")).toHaveLength(3);
  });
});
