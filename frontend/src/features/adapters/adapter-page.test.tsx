import { cleanup, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { delay, http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { Adapter, Alias } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const T = "/api/tenants/acme/adapters/support";
const AT = "2026-05-04T10:00:00Z";
const live: Alias = {
  name: "live",
  version: 1,
  updated_at: AT,
  previous: null,
  canary: null,
  canary_percent: null,
  canary_since: null,
  rolled_back: null,
};
const version = (number: number, changes = {}) => ({
  ...data.version,
  adapter: "support",
  number,
  state: "ready" as const,
  aliases: [],
  ...changes,
});
const adapter = (alias: Partial<Alias> = {}, versions = [version(2), version(1)]): Adapter => ({
  ...data.adapter,
  promotion_rule: null,
  versions,
  aliases: [{ ...live, ...alias }],
});

function serve(shown: Adapter) {
  server.use(
    http.get(T, () => HttpResponse.json(shown)),
    http.get(`${T}/versions/:number`, ({ params }) =>
      HttpResponse.json(shown.versions.find(({ number }) => number === Number(params.number))),
    ),
  );
}

describe("adapter page", () => {
  it("asks whether another base is the same model, and confirms it", async () => {
    const asking = version(2, { named_base: "org/other", asks_for_base: true });
    serve(adapter({}, [asking, version(1)]));
    let confirmed = false;
    server.use(
      http.post(`${T}/versions/2/confirm-base`, () => {
        confirmed = true;
        return HttpResponse.json({ ...asking, asks_for_base: false });
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2");
    const notice = await screen.findByTestId("base-confirmation");
    expect(notice).toHaveTextContent(
      "The configuration names org/other as its base model, but lorikeet-demo is served.",
    );
    expect(screen.queryByRole("button", { name: "Make live" })).not.toBeInTheDocument();
    await user.click(within(notice).getByRole("button", { name: "Confirm base model" }));
    await waitFor(() => expect(confirmed).toBe(true));
  });

  it("shows on which hosts only some of its experts are in the page pool", async () => {
    const by_tier = { device: 0, host: 20, disk: 200, store: 2000 };
    const on = (host: string, tier: string, experts: unknown = null) => ({
      host,
      tier,
      experts,
      cold_start_ms: 0,
      by_tier,
    });
    const some = on("gpu-1", "device", { resident: 620, total: 1000 });
    let tiers = [some, on("gpu-2", "device"), on("gpu-3", "disk")];
    serve(adapter());
    server.use(http.get(`${T}/versions/2/tiers`, () => HttpResponse.json(tiers)));
    openConsole("/t/acme/adapters/support?version=2");
    const table = await screen.findByRole("table", { name: "Cold start by tier" });
    const shares = within(table)
      .getAllByRole("row")
      .slice(1)
      .map((row) => within(row).getAllByRole("cell")[1]?.textContent);
    expect(shares).toEqual(["Device62% of experts", "Device", "Disk"]);
    expect(within(table).getByTitle("620 of 1,000 in the page pool")).toBeInTheDocument();
    expect(screen.getByText(/are read from host memory/)).toBeInTheDocument();
    cleanup();
    tiers = tiers.slice(1);
    openConsole("/t/acme/adapters/support?version=2");
    await screen.findByRole("table", { name: "Cold start by tier" });
    expect(screen.queryByText(/are read from host memory/)).not.toBeInTheDocument();
  });

  it("says of many hosts how many have a version, and shows those that do not", async () => {
    const on = (number: number, phase: "ready" | "queued" | "failed") => ({
      ...data.placement,
      host: `gpu-${number}`,
      phase,
      error: phase === "failed" ? { code: "x", message: "No room.", fix: "Make room." } : null,
    });
    const placements = [
      ...Array.from({ length: 30 }, (_, number) => on(number, "ready")),
      ...[40, 41, 42, 43, 44].map((number) => on(number, "queued")),
      on(50, "failed"),
    ];
    serve(adapter({}, [version(1, { placements })]));
    const { user } = openConsole("/t/acme/adapters/support");
    const staging = within(await screen.findByTestId("staging-status"));
    expect(staging.getByText("Ready on 30 of 36 hosts, failed on 1, queued on 5.")).toBeVisible();
    expect(staging.getAllByRole("heading").map(({ textContent }) => textContent)).toEqual([
      "gpu-50",
      "gpu-40",
      "gpu-41",
      "gpu-42",
    ]);
    await user.click(staging.getByText("All 36 hosts"));
    expect(within(staging.getByRole("group")).getAllByRole("listitem")).toHaveLength(36);
  });

  it("shows one part at a time, which the address and the versions keep", async () => {
    serve(adapter());
    server.use(http.get("/api/tenants/acme/evaluations", () => HttpResponse.json([])));
    const { user, router } = openConsole("/t/acme/adapters/support?version=2&tab=quality");
    expect(await screen.findByTestId("evaluations")).toBeVisible();
    expect(screen.queryByText("Aliases")).toBeNull();
    await user.click(screen.getByRole("link", { name: /v1/ }));
    expect(router.state.location.search).toEqual({ version: 1, tab: "quality" });
    await user.click(screen.getByRole("tab", { name: "Code" }));
    expect(router.state.location.search).toEqual({ version: 1, tab: "code" });
    expect(await screen.findByText("Call it")).toBeVisible();
    await user.click(screen.getByRole("tab", { name: "Version" }));
    expect(router.state.location.search).toEqual({ version: 1 });
  });

  it("shows the share of accepted drafts of each version where any had some", async () => {
    serve(adapter());
    const part = { ...data.series.totals, requests: 2, device_us_by_step: [], requests_by_step: [] };
    const drafted = 40;
    server.use(
      http.get("/api/tenants/acme/series", () =>
        HttpResponse.json({
          ...data.series,
          totals: { ...part, requests: 4, drafted_tokens: drafted, accepted_tokens: drafted / 4 },
          by_version: [
            { ...part, version: 2, drafted_tokens: drafted, accepted_tokens: drafted / 4 },
            { ...part, version: 1 },
          ],
        }),
      ),
    );
    openConsole("/t/acme/adapters/support?tab=traffic");
    const table = await screen.findByRole("table", { name: "Versions side by side" });
    expect(within(table).getByRole("columnheader", { name: "Accepted drafts" })).toBeVisible();
    expect(within(table).getByText("25%")).toBeVisible();
  });

  it("asks before an alias goes", async () => {
    serve({ ...adapter(), aliases: [live, { ...live, name: "prod" }] });
    const removed: unknown[] = [];
    server.use(
      http.delete(`${T}/aliases/:alias`, ({ params }) => {
        removed.push(params.alias);
        return HttpResponse.json(adapter());
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support");
    await user.click(await screen.findByRole("button", { name: "Remove the alias prod" }));
    expect(removed).toEqual([]);
    await user.click(
      within(screen.getByRole("alertdialog", { name: "Remove support@prod?" })).getByRole("button", {
        name: "Remove alias",
      }),
    );
    await waitFor(() => expect(removed).toEqual(["prod"]));
  });

  it("leads to a version that answers where none is live", async () => {
    const flagged = version(2, { verdict: "changes_nothing", asks_for_effect: true });
    serve({
      ...adapter({}, [version(3, { state: "failed" }), flagged, version(1)]),
      live_version: null,
      aliases: [],
      status: "failed",
    });
    openConsole("/t/acme/adapters/support");
    expect(await screen.findByRole("link", { name: "Try it" })).toHaveAttribute(
      "href",
      expect.stringContaining("support%40v2"),
    );
  });

  it("starts a canary with the share that was chosen", async () => {
    serve(adapter());
    let requests: unknown;
    server.use(
      http.put(`${T}/aliases/live/canary`, async ({ request }) => {
        requests = await request.json();
        return HttpResponse.json(adapter({ canary: 2, canary_percent: 20, canary_since: AT }));
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support");
    await user.click(await screen.findByRole("button", { name: "Start a canary" }));
    fireEvent.change(screen.getByRole("slider", { name: "Share of the requests" }), { target: { value: "20" } });
    await user.click(screen.getByRole("button", { name: "Start canary" }));
    await waitFor(() => expect(requests).toEqual({ version: 2, percent: 20 }));
  });

  it("shows a canary beside the alias's own version, and promotes it", async () => {
    serve(adapter({ canary: 2, canary_percent: 20, canary_since: AT }));
    const stats = { requests: 40, failed: 2, first_token_ms: 81.4, inter_token_ms: null };
    let promoted: unknown;
    server.use(
      http.get(`${T}/aliases/live/canary`, () =>
        HttpResponse.json({ canary: stats, own: { ...stats, failed: 0 }, least_requests: 20 }),
      ),
      http.put(`${T}/aliases/live`, async ({ request }) => {
        promoted = await request.json();
        return HttpResponse.json(adapter({ version: 2, previous: 1 }));
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support");
    const row = (await screen.findByRole("cell", { name: "v2, canary" })).closest("tr")!;
    expect(within(row).getByText("2 (5%)")).toBeVisible();
    expect(within(row).getByText("81 ms")).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Promote v2" }));
    await waitFor(() => expect(promoted).toEqual({ version: 2 }));
  });

  it("says why a canary ended, and leads back", async () => {
    serve(
      adapter({
        version: 2,
        previous: 1,
        rolled_back: { version: 3, at: AT, code: "error_rate", message: "6 of 22 requests failed." },
      }),
    );
    let back = false;
    server.use(
      http.post(`${T}/aliases/live/rollback`, () => {
        back = true;
        return HttpResponse.json(adapter());
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support");
    expect(await screen.findByText(/6 of 22 requests failed/)).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Roll back to v1" }));
    await waitFor(() => expect(back).toBe(true));
  });

  it("warns of a version whose requests overflowed, and of no other", async () => {
    serve(adapter({}, [version(2), version(1, { overflowed_at: AT })]));
    const { user } = openConsole("/t/acme/adapters/support?version=1");
    expect(await screen.findByText("adapter_overflow")).toBeVisible();
    await user.click(screen.getByRole("link", { name: /v2/ }));
    await waitFor(() => expect(screen.queryByText("adapter_overflow")).not.toBeInTheDocument());
  });

  it("shows what a version did when a host tried it, and warns of one that changes nothing", async () => {
    const prompt = {
      prompt: "How are you?",
      base_tokens: ["I", " am"],
      adapter_tokens: ["Arr", " am"],
      largest_change: 2.5,
      mean_change: 1,
      finite: true,
    };
    const effect = {
      verdict: "acts",
      largest_change: 2.5,
      tokens: 2,
      differing_tokens: 1,
      layer_changes: [0.125, 0.0625],
      prompts: [prompt],
      agreement: null,
      host: "gpu1",
      elapsed_ms: 50,
      at: AT,
    };
    const idle = { ...effect, verdict: "changes_nothing", differing_tokens: 0 };
    serve(
      adapter({}, [
        version(2, { verdict: "acts", effect }),
        version(1, { verdict: "changes_nothing", effect: idle, asks_for_effect: true }),
      ]),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2&tab=quality");
    const shown = await screen.findByTestId("effect");
    expect(within(shown).getByText("Arr")).toHaveClass("bg-accent-soft");
    expect(shown).toHaveTextContent("1 token of 2 differ");
    expect(within(shown).getByRole("img")).toHaveAccessibleName("layer 0: 13%; layer 1: 6.3%");
    expect(screen.queryByTestId("effect-warning")).not.toBeInTheDocument();
    await user.click(screen.getByRole("link", { name: /v1/ }));
    expect(await screen.findByTestId("effect-warning")).toHaveTextContent("Changes nothing");
    expect(screen.queryByTestId("effect-confirmation"), "it is live already").not.toBeInTheDocument();
  });

  it("shows in which dtype each host serves a version and why, and sets it", async () => {
    const report = {
      outcome: "agrees",
      reason: "",
      tokens: 77,
      agreeing: 75,
      mean_distance: 0.0625,
      largest_distance: 0.5,
      least_agreeing: 0.9,
      most_distance: 0.15,
      elapsed_ms: 300,
      at: AT,
    };
    const on = (host: string, changes: object) => ({ ...data.placement, phase: "ready", host, ...changes });
    const reason = "In FP8 log-probabilities move by 0.300 on average; at most 0.15 is accepted.";
    const placements = [
      on("a", { dtype: "fp8", dtype_report: report }),
      on("b", { dtype: "bfloat16", dtype_report: { ...report, outcome: "differs", agreeing: 60, reason } }),
      on("c", { dtype: "bfloat16", dtype_report: { ...report, outcome: "pending", tokens: 0 } }),
      on("d", { dtype: "float16", dtype_report: { ...report, outcome: "not_measured", tokens: 0, reason: "Off." } }),
      on("e", {}),
    ];
    const shown = version(1, { placements });
    serve(adapter({}, [shown]));
    const sent: unknown[] = [];
    server.use(
      http.put(`${T}/versions/1/dtype`, async ({ request }) => {
        sent.push(await request.json());
        serve(adapter({}, [{ ...shown, adapter_dtype: "bf16" }]));
        return HttpResponse.json({ ...shown, adapter_dtype: "bf16" });
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support");
    const section = within(await screen.findByTestId("adapter-dtype"));
    expect(section.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual([
      expect.stringMatching(/^afp875 of 77 tokens agree in FP8.*0\.063 on average.*accepted from 90% of tokens/),
      expect.stringContaining(reason),
      expect.stringContaining("when it has time"),
      expect.stringContaining("Off."),
      expect.stringContaining("has not reported"),
    ]);
    expect(section.getByRole("radio", { name: "Auto" })).toBeChecked();
    await user.click(section.getByRole("radio", { name: "BF16" }));
    await waitFor(() => expect(section.getByRole("radio", { name: "BF16" })).toBeChecked());
    expect(sent).toEqual([{ adapter_dtype: "bf16" }]);
  });

  it("makes a flagged version live only when somebody says so", async () => {
    const flagged = version(2, { overflowed_at: AT, asks_for_effect: true });
    serve(adapter({}, [flagged, version(1)]));
    let confirmed = false;
    server.use(
      http.post(`${T}/versions/2/confirm-effect`, () => {
        confirmed = true;
        serve(adapter({}, [{ ...flagged, asks_for_effect: false }, version(1)]));
        return HttpResponse.json({ ...flagged, asks_for_effect: false });
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2");
    const notice = await screen.findByTestId("effect-confirmation");
    expect(notice).toHaveTextContent("Try it as support@v2.");
    expect(screen.getByRole("link", { name: /v2 to confirm/ })).toBeVisible();
    expect(screen.queryByRole("button", { name: "Make live" })).not.toBeInTheDocument();
    await user.click(within(notice).getByRole("button", { name: "Accept result" }));
    expect(await screen.findByRole("button", { name: "Make live" })).toBeVisible();
    expect(confirmed).toBe(true);
  });

  it("shows what a quantised base costs a version beside what it costs the base, and warns of one that it costs more", async () => {
    const prompt = {
      prompt: "How are you?",
      base_tokens: ["I", " am"],
      adapter_tokens: ["Arr", " am"],
      largest_change: 2.5,
      mean_change: 1,
      finite: true,
    };
    const base = { tokens: 2, agreeing: 2, mean_distance: 0.1, largest_distance: 0.4 };
    const adapterAgreement = { tokens: 2, agreeing: 1, mean_distance: 0.5, largest_distance: 0.9 };
    const agreement = {
      outcome: "differs",
      reason: "By more than the base.",
      dequantised: false,
      base,
      adapter: adapterAgreement,
      layer_changes: [0.03, 0.02],
      elapsed_ms: 9,
      prompts: [{ base, adapter: adapterAgreement, base_tokens: ["I", " am"], adapter_tokens: ["Yes", " am"] }],
    };
    const pending = {
      ...agreement,
      outcome: "pending",
      reason: "",
      base: null,
      adapter: null,
      layer_changes: [],
      prompts: [],
    };
    const effect = {
      verdict: "acts",
      largest_change: 2.5,
      tokens: 2,
      differing_tokens: 1,
      layer_changes: [0.125, 0.0625],
      prompts: [prompt],
      agreement,
      host: "gpu1",
      elapsed_ms: 50,
      at: AT,
    };
    serve(
      adapter({}, [
        version(3, { verdict: "acts", agreement: "differs", effect }),
        version(2, { verdict: "acts", agreement: "pending", effect: { ...effect, agreement: pending } }),
        version(1, {
          verdict: "acts",
          agreement: "not_measured",
          effect: { ...effect, agreement: { ...pending, outcome: "not_measured", reason: "No memory." } },
        }),
      ]),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=3&tab=quality");
    const shown = await screen.findByTestId("agreement");
    expect(within(shown).getByRole("row", { name: "With this version 1 of 2 0.500 0.90" })).toBeVisible();
    expect(within(shown).getByRole("row", { name: "Base model only 2 of 2 0.100 0.40" })).toBeVisible();
    expect(within(shown).getByText("Yes")).toHaveClass("bg-amber-soft");
    expect(shown).toHaveTextContent("By more than the base.");
    expect(screen.getByTestId("effect-warning")).toHaveTextContent("Differs on the quantised base");
    expect(
      screen.getByRole("img", { name: "layer 0: 13%, by quantisation 3.0%; layer 1: 6.3%, by quantisation 2.0%" }),
    ).toBeVisible();
    await user.click(screen.getByRole("link", { name: /v2/ }));
    await waitFor(() => expect(screen.getByTestId("agreement")).toHaveTextContent("Measurement in progress"));
    expect(screen.queryByTestId("effect-warning")).not.toBeInTheDocument();
    await user.click(screen.getByRole("link", { name: /v1/ }));
    await waitFor(() => expect(screen.getByTestId("agreement")).toHaveTextContent("Not measured. No memory."));
  });

  it("shows an adapter's own chat template, and nothing where it is the base's", async () => {
    const chat_template = {
      source: "{{ messages }}",
      tool_source: "{{ tools }}",
      special_tokens: { eos_token: "<|im_end|>" },
    };
    serve(adapter({}, [version(2, { chat_template }), version(1)]));
    const { user } = openConsole("/t/acme/adapters/support?version=2&tab=quality");
    const shown = await screen.findByTestId("chat-template");
    await user.click(within(shown).getByText("Adapter’s chat template"));
    expect(within(shown).getByLabelText("Template")).toHaveTextContent("{{ messages }}");
    expect(within(shown).getByLabelText("Template for requests with tools")).toHaveTextContent("{{ tools }}");
    expect(shown).toHaveTextContent("eos_token <|im_end|>");
    await user.click(screen.getByRole("link", { name: /v1/ }));
    await waitFor(() => expect(screen.queryByTestId("chat-template")).not.toBeInTheDocument());
  });

  it("explains why a version that is in use stays", async () => {
    serve(adapter());
    const { user } = openConsole("/t/acme/adapters/support?version=1");
    await user.click(await screen.findByRole("button", { name: "Delete v1" }));
    expect(screen.getByText("support@live points at it")).toBeVisible();
    expect(screen.queryByRole("button", { name: "Delete version" })).not.toBeInTheDocument();
  });

  it("archives a version, and shows the server's refusal", async () => {
    serve(adapter());
    server.use(
      http.post(`${T}/versions/2/archive`, () =>
        refusal(409, "version_in_use", "support@v2 is in use: somebody was faster.", "Look again."),
      ),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2");
    await user.click(await screen.findByRole("button", { name: "Archive v2" }));
    await user.click(screen.getByRole("button", { name: "Archive version" }));
    expect(await screen.findByText(/somebody was faster/)).toBeVisible();
  });

  it("leaves the page of an adapter that it archived, which is gone while other parts are still read", async () => {
    serve(adapter());
    let archived = false;
    server.use(
      http.get(T, () =>
        archived
          ? refusal(404, "adapter_not_found", "There is no adapter support.", "Look again.")
          : HttpResponse.json(adapter()),
      ),
      http.delete(T, () => {
        archived = true;
        return new HttpResponse(null, { status: 204 });
      }),
      http.get(`${T}/versions/:number`, async () => {
        if (archived) await delay(300);
        return HttpResponse.json(version(1));
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support");
    await user.click(await screen.findByRole("button", { name: "Archive support" }));
    await user.click(screen.getByRole("button", { name: "Archive adapter" }));
    expect(await screen.findByRole("heading", { level: 1, name: "Adapters" })).toBeVisible();
  });

  it("restores what is archived", async () => {
    serve(
      adapter({}, [version(2, { state: "archived", kept_until: "2026-06-04T10:00:00Z", placements: [] }), version(1)]),
    );
    let restored = false;
    server.use(
      http.post(`${T}/versions/2/restore`, () => {
        restored = true;
        return HttpResponse.json(version(2, { state: "staging" }), { status: 202 });
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2");
    expect(await screen.findByText("Archived. It can be restored until 4 Jun.")).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Restore" }));
    await waitFor(() => expect(restored).toBe(true));
  });
});

describe("adapters page", () => {
  it("shows storage and what can be restored", async () => {
    const archived = {
      id: "a-1",
      name: "old",
      description: "",
      versions_count: 2,
      archived_at: AT,
      kept_until: "2026-06-03T10:00:00Z",
    };
    let restored = false;
    server.use(
      http.get("/api/tenants/acme/storage", () =>
        HttpResponse.json({
          bytes: 3000,
          limit_bytes: 10_000,
          archived_bytes: 500,
          adapters: [{ name: "support", versions: 3, bytes: 3000 }],
          adapter_count: 1,
        }),
      ),
      http.get("/api/tenants/acme/archived-adapters", () => HttpResponse.json([archived])),
      http.post("/api/tenants/acme/archived-adapters/a-1/restore", () => {
        restored = true;
        return HttpResponse.json(adapter(), { status: 202 });
      }),
    );
    const { user } = openConsole("/t/acme/adapters");
    expect(await screen.findByText(/^Storage: 3/)).toBeVisible();
    expect(screen.getByText(/500 B of archived content do not count/)).toBeVisible();
    await user.click(await screen.findByRole("button", { name: "Restore old" }));
    await waitFor(() => expect(restored).toBe(true));
  });
});
