import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import type { Host, OperatorHost } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const host: Host = {
  name: "gpu1",
  state: "online",
  service: "serving",
  quarantine: null,
  boot_id: "b1",
  model: "llama",
  device: "cuda",
  running: 0,
  waiting: 0,
  tokens_per_second: 12,
  experts: null,
  pool: { total: 100, free: 100, kv: 0, cached_prefix: 0, adapter: 0, reserved: 0, state: 0 },
  page_bytes: 65536,
  last_seen: "2026-05-04T10:00:00Z",
  adapters: [],
  adapters_total: 0,
};
const quarantine = {
  code: "other_base_model",
  message: "This host serves mistral; this installation serves llama.",
  fix: "Start the engine with the right model.",
} as const;
const foreign: Host = { ...host, name: "gpu2", model: "mistral", quarantine };
const forOperators = (shown: Host, base_digest: string): OperatorHost => ({
  ...shown,
  adapters: [],
  base_digest,
  only_here: 0,
  joined: null,
  zone: "",
  adapter_readers: 0,
  address: `${shown.name}:7000`,
});
const base = {
  name: "llama",
  digest: "sha256:aaaaaaaaaaaaaaaa",
  decided_by: "ada@example.org",
  decided_at: "2026-05-04T09:00:00Z",
  adapters_of: [],
};
const report = {
  days: 30,
  as_of: null,
  tenants: 0,
  currency: null,
  by_day: [],
  by_tenant: [],
  by_base_model: [],
  top_adapters: [],
  totals: data.usage.totals,
  latency: data.usage.latency,
  outcomes: { finished: 0, aborted: 0, failed: 0, refused: 0 },
};

describe("a host with another base model", () => {
  it("is shown in quarantine with the reason, and the others are not", async () => {
    server.use(http.get("/api/tenants/acme/hosts", () => HttpResponse.json([host, foreign])));
    openConsole("/t/acme/hosts");
    const card = within(await screen.findByLabelText("Host gpu2"));
    expect(card.getByText("quarantine")).toBeVisible();
    expect(card.getByRole("note", { name: "Quarantine of gpu2" })).toHaveTextContent(quarantine.message);
    expect(card.getByRole("note")).toHaveTextContent(
      "It receives no adapters and no requests. Start the engine with the right model.",
    );
    const other = within(screen.getByLabelText("Host gpu1"));
    expect(other.getByText("online")).toBeVisible();
    expect(other.queryByRole("note")).not.toBeInTheDocument();
  });

  it("that is away is shown as away", async () => {
    server.use(http.get("/api/tenants/acme/hosts", () => HttpResponse.json([{ ...foreign, state: "offline" }])));
    openConsole("/t/acme/hosts");
    expect(within(await screen.findByLabelText("Host gpu2")).getByText("offline")).toBeVisible();
  });

  it("does not count among those that serve", async () => {
    server.use(
      http.get("/api/tenants/acme/overview", () => HttpResponse.json({ ...data.overview, hosts: [host, foreign] })),
    );
    openConsole("/t/acme");
    expect(await screen.findByText("quarantine")).toBeVisible();
    const [figure] = screen.getAllByText("Hosts in use");
    expect(figure?.parentElement).toHaveTextContent("1 / 2");
  });
});

describe("the base model, for operators", () => {
  const requests: unknown[] = [];

  beforeEach(() => {
    requests.length = 0;
    const user = data.session.user && { ...data.session.user, is_operator: true };
    server.use(
      http.get("/api/session", () => HttpResponse.json({ ...data.session, user })),
      http.get("/api/operator/report", () => HttpResponse.json(report)),
      http.get("/api/operator/prices", () => HttpResponse.json([])),
      http.get("/api/operator/base-model", () => HttpResponse.json(base)),
      http.get("/api/operator/hosts", () =>
        HttpResponse.json([forOperators(host, base.digest), forOperators(foreign, "sha256:bbbbbbbbbbbbbbbb")]),
      ),
      http.put("/api/operator/base-model", async ({ request }) => {
        requests.push(await request.json());
        return HttpResponse.json({ ...base, name: "mistral" });
      }),
    );
  });

  it("says what is served, what is not, and lets another one be chosen", async () => {
    const { user } = openConsole("/t/acme/operator");
    const card = within(await screen.findByLabelText("Base model"));
    expect(await card.findByText(/decided by ada@example.org/)).toBeVisible();
    expect(card.getByRole("note", { name: "Quarantine of gpu2" })).toHaveTextContent(`gpu2: ${quarantine.message}`);
    await user.click(card.getByRole("button", { name: "Serve this model" }));
    const dialog = within(await screen.findByRole("alertdialog", { name: "Serve mistral of gpu2?" }));
    await user.click(dialog.getByLabelText(/Keep the adapters of llama/));
    await user.click(dialog.getByRole("button", { name: "Serve this model" }));
    await waitFor(() => expect(requests).toEqual([{ host: "gpu2", keep_adapters: true }]));
    await waitFor(() => expect(screen.queryByRole("alertdialog")).not.toBeInTheDocument());
  });

  it("says a reason that several hosts have once", async () => {
    const others = [3, 4, 5, 6].map((number) =>
      forOperators({ ...foreign, name: `gpu${number}` }, "sha256:bbbbbbbbbbbbbbbb"),
    );
    server.use(
      http.get("/api/operator/hosts", () =>
        HttpResponse.json([forOperators(foreign, "sha256:bbbbbbbbbbbbbbbb"), ...others]),
      ),
    );
    openConsole("/t/acme/operator");
    expect(await screen.findByRole("note", { name: "Quarantine of gpu2, gpu3, gpu4, gpu5, gpu6" })).toHaveTextContent(
      `gpu2, gpu3, gpu4, gpu5 and 1 more: ${quarantine.message}`,
    );
    expect(screen.getAllByRole("note")).toHaveLength(1);
  });

  it("keeps the dialog open with the server's reason when it is refused", async () => {
    server.use(
      http.put("/api/operator/base-model", () =>
        refusal(409, "adapters_do_not_fit", "It has other shapes.", "Decide without keeping the adapters."),
      ),
    );
    const { user } = openConsole("/t/acme/operator");
    await user.click(await screen.findByRole("button", { name: "Serve this model" }));
    await user.click(await screen.findByRole("button", { name: "Serve this model" }));
    expect(await screen.findByText("It has other shapes.")).toBeVisible();
  });

  it("is undecided before the first host was seen", async () => {
    const undecided = { code: "base_model_undecided", message: "Not decided.", fix: "Decide." } as const;
    server.use(
      http.get("/api/operator/base-model", () =>
        refusal(404, "base_model_undecided", "It is not decided yet.", "Start the first host."),
      ),
      http.get("/api/operator/hosts", () =>
        HttpResponse.json([forOperators({ ...foreign, quarantine: undecided }, "sha256:bbbbbbbbbbbbbbbb")]),
      ),
    );
    const { user } = openConsole("/t/acme/operator");
    expect(await screen.findByText(/Not decided yet/)).toBeVisible();
    await user.click(await screen.findByRole("button", { name: "Serve this model" }));
    expect(screen.queryByLabelText(/Keep the adapters/)).not.toBeInTheDocument();
    await user.click(screen.getByRole("button", { name: "Serve this model" }));
    await waitFor(() => expect(requests).toEqual([{ host: "gpu2", keep_adapters: false }]));
  });
});
