import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { Prefix, TenantPins } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const T = "/api/tenants/acme";
const MB = 1e6;
const version = { ...data.version, adapter: "support", number: 1, state: "ready" as const, aliases: [] };
const handbook: Prefix = {
  name: "handbook",
  model: "support",
  cache_salt: "",
  tokens: 4096,
  bytes: 12 * MB,
  pinned_at: "2026-05-04T10:00:00Z",
  hosts: [
    { host: "gpu1", state: "kept", bytes: 12 * MB, error: null },
    {
      host: "gpu2",
      state: "failed",
      bytes: 12 * MB,
      error: { code: "too_large_for_host", message: "It does not fit.", fix: "Ask the operator." },
    },
  ],
};
const nothing: TenantPins = { used_bytes: 0, limit_bytes: 64 * MB, adapters: [], prefixes: [] };

function serve(first: TenantPins) {
  let pins = first;
  const sent: unknown[] = [];
  server.use(
    http.get(`${T}/adapters/support`, () =>
      HttpResponse.json({ ...data.adapterDetail, name: "support", versions: [version] }),
    ),
    http.get(`${T}/adapters/support/versions/1`, () => HttpResponse.json(version)),
    http.get(`${T}/pins`, () => HttpResponse.json(pins)),
    http.post(`${T}/pinned-prefixes`, async ({ request }) => {
      sent.push(await request.json());
      pins = { ...pins, used_bytes: 12 * MB, prefixes: [handbook] };
      return HttpResponse.json(handbook, { status: 201 });
    }),
    http.get(`${T}/pinned-prefixes/handbook`, () =>
      HttpResponse.json({ ...handbook, content: { messages: [{ role: "system", content: "Be brief." }] } }),
    ),
    http.delete(`${T}/pinned-prefixes/handbook`, () => {
      pins = nothing;
      return new HttpResponse(null, { status: 204 });
    }),
  );
  return sent;
}

const card = async (name: string) => within(await screen.findByLabelText(name));

describe("pinned prefixes", () => {
  it("pins the beginning of an adapter's prompts, shows what each host does, its text, and unpins it", async () => {
    const sent = serve(nothing);
    const { user } = openConsole("/t/acme/adapters/support?tab=pins");
    const prefixes = await card("Pinned prefixes");
    await user.click(await prefixes.findByRole("button", { name: "Pin a prefix" }));
    await user.type(await screen.findByLabelText("Name"), "handbook");
    await user.type(screen.getByLabelText("Text"), "Be brief.");
    await user.click(screen.getByRole("button", { name: "Pin prefix" }));
    await waitFor(() =>
      expect(sent).toEqual([
        { name: "handbook", model: "support", cache_salt: "", messages: [{ role: "system", content: "Be brief." }] },
      ]),
    );
    expect(await prefixes.findByText("gpu1: kept")).toBeVisible();
    expect(prefixes.getByText("It does not fit. Ask the operator.")).toBeVisible();
    expect(prefixes.getByText(/4,096 tokens · 12(\.0)? MB of each host/)).toBeVisible();
    await user.click(prefixes.getByRole("button", { name: "Show text of handbook" }));
    expect(await screen.findByText("Be brief.")).toBeVisible();
    await user.keyboard("{Escape}");
    await user.click(prefixes.getByRole("button", { name: "Unpin handbook" }));
    await user.click(await screen.findByRole("button", { name: "Unpin" }));
    await waitFor(() => expect(prefixes.queryByText("gpu1: kept")).not.toBeInTheDocument());
  });

  it("offers nothing without a quota, and says why", async () => {
    serve({ ...nothing, limit_bytes: null });
    openConsole("/t/acme/adapters/support?tab=pins");
    const prefixes = await card("Pinned prefixes");
    expect(await prefixes.findByText("The operator has granted this tenant no device memory for pins.")).toBeVisible();
    expect(prefixes.queryByRole("button", { name: "Pin a prefix" })).not.toBeInTheDocument();
  });

  it("shows a refusal with its fix, and keeps what was written", async () => {
    serve(nothing);
    server.use(
      http.post(`${T}/pinned-prefixes`, () => refusal(409, "pins_full", "Pins take a quarter.", "Unpin another one.")),
    );
    const { user } = openConsole("/t/acme/adapters/support?tab=pins");
    const prefixes = await card("Pinned prefixes");
    await user.click(await prefixes.findByRole("button", { name: "Pin a prefix" }));
    await user.click(await screen.findByRole("button", { name: "Pin prefix" }));
    expect(await screen.findByText("Paste the text that the requests start with.")).toBeVisible();
    await user.type(screen.getByLabelText("Name"), "handbook");
    await user.type(screen.getByLabelText("Text"), "Be brief.");
    await user.click(screen.getByRole("button", { name: "Pin prefix" }));
    expect(await screen.findByText("Pins take a quarter.")).toBeVisible();
    expect(screen.getByLabelText("Text")).toHaveValue("Be brief.");
  });

  it("lists all that is pinned in the settings, with the quota, and of a base model that is not served", async () => {
    serve({
      used_bytes: 24 * MB,
      limit_bytes: 64 * MB,
      adapters: [{ name: "legal", bytes: 12 * MB, pinned_at: handbook.pinned_at }],
      prefixes: [{ ...handbook, model: "", hosts: [] }],
    });
    openConsole("/t/acme/settings");
    const pins = await card("Pinned memory");
    expect(await pins.findByText(/24(\.0)? MB of 64(\.0)? MB of each host/)).toBeVisible();
    expect(pins.getByText("legal")).toBeVisible();
    expect(pins.getByText(/a base model that is not served/)).toBeVisible();
    expect(pins.getByText("No host has it now. It will be kept on the next host that is available.")).toBeVisible();
  });
});
