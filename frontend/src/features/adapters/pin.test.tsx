import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { Pin } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const T = "/api/tenants/acme/adapters/support";
const version = { ...data.version, adapter: "support", number: 1, state: "ready" as const, aliases: [] };
const MB = 1e6;
const unpinned: Pin = {
  pinned_at: null,
  bytes: 12 * MB,
  used_bytes: 0,
  limit_bytes: 64 * MB,
  hosts: [{ host: "gpu1", bytes: 12 * MB, pinned: false }],
};

function serve(first: Pin) {
  let pin = first;
  server.use(
    http.get(T, () => HttpResponse.json({ ...data.adapterDetail, name: "support", versions: [version] })),
    http.get(`${T}/versions/1`, () => HttpResponse.json(version)),
    http.get(`${T}/pin`, () => HttpResponse.json(pin)),
    http.put(`${T}/pin`, () => {
      pin = {
        ...pin,
        pinned_at: "2026-05-04T10:00:00Z",
        used_bytes: 12 * MB,
        hosts: pin.hosts.map((host) => ({ ...host, pinned: true })),
      };
      return HttpResponse.json(pin);
    }),
    http.delete(`${T}/pin`, () => {
      pin = first;
      return new HttpResponse(null, { status: 204 });
    }),
  );
}

const card = async () => within(await screen.findByLabelText("Pinned"));

describe("keeping an adapter loaded", () => {
  it("says what it takes, pins, shows where it is kept, and unpins", async () => {
    serve(unpinned);
    const { user } = openConsole("/t/acme/adapters/support?tab=pins");
    const pin = await card();
    const button = await pin.findByRole("switch", { name: /Keep support loaded/ });
    expect(button).not.toBeChecked();
    expect(pin.getByText(/It takes 12(\.0)? MB of each host; 0 B of 64(\.0)? MB are used/)).toBeVisible();
    await user.click(button);
    expect(await pin.findByText("gpu1: kept")).toBeVisible();
    expect(button).toBeChecked();
    await user.click(button);
    await waitFor(() => expect(button).not.toBeChecked());
    expect(pin.queryByText("gpu1: kept")).not.toBeInTheDocument();
  });

  it("cannot be chosen without a quota, and says who grants one", async () => {
    serve({ ...unpinned, limit_bytes: null });
    openConsole("/t/acme/adapters/support?tab=pins");
    const pin = await card();
    expect(await pin.findByRole("switch")).toBeDisabled();
    expect(pin.getByText("The operator has not granted this tenant device memory for pins.")).toBeVisible();
  });

  it("shows why the server refused, with what to do", async () => {
    serve(unpinned);
    server.use(http.put(`${T}/pin`, () => refusal(409, "pins_full", "Pins take a quarter.", "Unpin another one.")));
    const { user } = openConsole("/t/acme/adapters/support?tab=pins");
    const pin = await card();
    await user.click(await pin.findByRole("switch"));
    expect(await pin.findByText("Pins take a quarter.")).toBeVisible();
    expect(pin.getByRole("switch")).not.toBeChecked();
  });

  it("tells that a host has yet to load it", async () => {
    serve({ ...unpinned, pinned_at: "2026-05-04T10:00:00Z" });
    openConsole("/t/acme/adapters/support?tab=pins");
    expect(await (await card()).findByText("gpu1: not yet")).toBeVisible();
  });
});
