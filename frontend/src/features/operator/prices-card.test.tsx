import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import type { ListedBaseModel, PriceVersion } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const base: ListedBaseModel = {
  name: "llama-70b",
  digest: "sha256:aa",
  state: "served",
  hosts: [],
  adapters: 0,
  max_context: 8192,
  sleeps_after_s: 0,
  wanted: true,
  hosts_online: 0,
  decided_by: "ada@example.org",
  decided_at: "2026-05-04T09:00:00Z",
  withdrawn_at: null,
};
const all: PriceVersion = {
  number: 1,
  base_model: null,
  base_model_digest: null,
  inherits: false,
  effective_on: "2026-01-01",
  currency: "USD",
  input_per_million: 200_000,
  cached_input_per_million: 50_000,
  output_per_million: 600_000,
  storage_per_gb_month: 250_000,
  created_at: "2026-01-01T00:00:00Z",
  created_by: null,
};
const ofModel: PriceVersion = {
  ...all,
  number: 2,
  base_model: base.name,
  base_model_digest: base.digest,
  input_per_million: 900_000,
  storage_per_gb_month: null,
};
const total = { ...data.usage.totals, requests: 4 };

describe("prices of base models, for operators", () => {
  const requests: Record<string, unknown>[] = [];
  let listed: PriceVersion[] = [];

  beforeEach(() => {
    requests.length = 0;
    listed = [ofModel, all];
    const user = data.session.user && { ...data.session.user, is_operator: true };
    const note = async ({ request }: { request: Request }) => {
      requests.push((await request.json()) as Record<string, unknown>);
      return HttpResponse.json(ofModel, { status: 201 });
    };
    server.use(
      http.get("/api/session", () => HttpResponse.json({ ...data.session, user })),
      http.get("/api/operator/base-model", () =>
        HttpResponse.json({
          name: "llama",
          digest: "sha256:x",
          adapters_of: [],
          decided_by: "ada",
          decided_at: base.decided_at,
        }),
      ),
      http.get("/api/operator/base-models", () =>
        HttpResponse.json([{ ...base, name: "llama", digest: "sha256:x" }, base]),
      ),
      http.get("/api/operator/report", ({ request }) => {
        const chosen = new URL(request.url).searchParams.get("base_model");
        const by_base_model = [
          { ...total, base_model: "llama-70b" },
          { ...total, base_model: "llama" },
        ].filter((row) => !chosen || row.base_model === chosen);
        const outcomes = { finished: 4, aborted: 0, failed: 0, refused: 0 };
        const latency = data.usage.latency;
        return HttpResponse.json({
          first: "2026-05-01",
          last: "2026-05-30",
          as_of: null,
          currency: "USD",
          totals: total,
          outcomes,
          latency,
          by_day: [],
          by_base_model,
          tenants: 0,
          by_tenant: [],
          top_adapters: [],
        });
      }),
      http.get("/api/operator/hosts", () => HttpResponse.json([])),
      http.get("/api/operator/prices", () => HttpResponse.json(listed)),
      http.post("/api/operator/prices", note),
      http.post("/api/operator/prices/end", note),
    );
  });

  it.each([
    [8, 0, "gpu8", null],
    [9, 0, null, "No host needs a decision. All 9 hosts"],
    [9, 1, "gpu1", "The hosts above need a decision. All 9 hosts"],
  ])(
    "lists %i hosts, of which %i need a decision, only if the card stays short",
    async (count, waiting, shown, note) => {
      const quarantine = { code: "revoked", message: "Its credential was revoked.", fix: "Make a join token for it." };
      const hosts = Array.from({ length: count }, (_, index) => ({
        name: `gpu${index + 1}`,
        state: "online",
        service: "serving",
        model: "llama",
        base_digest: "sha256:x",
        last_seen: "2026-05-04T10:00:00Z",
        address: "gpu:7000",
        quarantine: index < waiting ? quarantine : null,
      }));
      server.use(http.get("/api/operator/hosts", () => HttpResponse.json(hosts)));
      openConsole("/t/acme/operator");
      const card = await screen.findByLabelText("Base model");
      if (shown) expect(await within(card).findByRole("cell", { name: shown })).toBeVisible();
      else expect(await within(card).findByText(/All 9 hosts/)).toBeVisible();
      expect(within(card).queryAllByRole("row")).toHaveLength(shown ? (waiting || count) + 1 : 0);
      if (note) expect(card).toHaveTextContent(note);
      else expect(within(card).queryByText(/All .* hosts/)).toBeNull();
    },
  );

  it("says whose each list is, and which holds now", async () => {
    listed = [{ ...ofModel, number: 3, inherits: true, effective_on: "2999-01-01" }, ofModel, all];
    openConsole("/t/acme/operator");
    const table = within(await screen.findByRole("table", { name: "Prices" }));
    expect(
      table.getByRole("row", { name: /3 to come llama-70b 2999-01-01 no longer has separate prices/ }),
    ).toBeVisible();
    expect(table.getByRole("row", { name: /2 now llama-70b .* \$0\.90 \$0\.05 \$0\.60 –/ })).toBeVisible();
    expect(table.getByRole("row", { name: /1 now all others .* \$0\.20 \$0\.05 \$0\.60 \$0\.25/ })).toBeVisible();
    expect(table.queryByRole("button")).toBeNull(); // it ends already
  });

  it("publishes a base model's own, without storage, from those of all", async () => {
    listed = [all];
    const { user } = openConsole("/t/acme/operator");
    await user.click(await screen.findByRole("button", { name: "Publish prices" }));
    const dialog = within(await screen.findByRole("dialog"));
    expect(dialog.getByLabelText("Adapter storage, per GB-month")).toHaveValue("0.25");
    await user.selectOptions(dialog.getByLabelText("Base model"), "llama-70b");
    expect(dialog.queryByLabelText("Adapter storage, per GB-month")).toBeNull();
    const input = dialog.getByLabelText("Input, per million tokens");
    expect(input).toHaveValue("0.2");
    await user.clear(input);
    await user.type(input, "1.5");
    await user.click(dialog.getByRole("button", { name: "Publish" }));
    await waitFor(() => expect(requests).toHaveLength(1));
    expect(requests[0]).toMatchObject({
      base_model_digest: "sha256:aa",
      input_per_million: 1_500_000,
      storage_per_gb_month: null,
      output_per_million: 600_000,
    });
  });

  it("ends them", async () => {
    const { user } = openConsole("/t/acme/operator");
    await user.click(await screen.findByRole("button", { name: "End the prices of llama-70b" }));
    await user.click(await screen.findByRole("button", { name: "End its prices" }));
    await waitFor(() =>
      expect(requests).toEqual([
        { base_model_digest: "sha256:aa", effective_on: expect.stringMatching(/^\d{4}-\d\d-\d\d$/) as string },
      ]),
    );
  });

  it("shows the report of one base model, kept in the address", async () => {
    const { user, router } = openConsole("/t/acme/operator?days=7");
    const table = within(await screen.findByRole("table", { name: "Usage by base model" }));
    expect(table.getByRole("row", { name: /^llama-70b 4/ })).toBeVisible();
    await user.selectOptions(screen.getByRole("combobox", { name: "Base model" }), "llama-70b");
    expect(router.state.location.search).toEqual({ days: 7, base_model: "llama-70b" });
    await waitFor(() => expect(screen.queryByRole("table", { name: "Usage by base model" })).toBeNull());
    expect(screen.getByRole("link", { name: "Download CSV" })).toHaveAttribute(
      "href",
      "/api/operator/usage.csv?days=7&base_model=llama-70b",
    );
  });
});
