import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const tenant = "/api/tenants/:tenant";

describe("models from the Hub", () => {
  it("are allowed, of some organisations, and forbidden again", async () => {
    let hub = { enabled: false, organizations: [] as string[] };
    const models = [
      {
        name: "hub:org/a@v1",
        state: "accepted",
        adapter: "hub-org-a-1",
        version: 2,
        upload: "u",
        requested_at: "2026-05-04T10:00:00Z",
      },
    ];
    server.use(
      http.get(`${tenant}/recording`, () => HttpResponse.json({ enabled: false, days: 30 })),
      http.get(`${tenant}/origins`, () => HttpResponse.json({ origins: [] })),
      http.get(`${tenant}/hub-models`, () => HttpResponse.json({ ...hub, models })),
      http.put(`${tenant}/hub-models`, async ({ request }) => {
        hub = (await request.json()) as typeof hub;
        return HttpResponse.json({ ...hub, models });
      }),
    );
    const { user } = openConsole("/t/acme/settings");
    await user.type(await screen.findByLabelText("Organisations"), "org, other");
    await user.click(screen.getByRole("button", { name: "Enable imports by request" }));
    await user.click(await screen.findByRole("button", { name: "Disable imports by request" }));
    expect(await screen.findByRole("button", { name: "Enable imports by request" })).toBeVisible();
    expect(hub).toEqual({ enabled: false, organizations: ["org", "other"] });
    expect(screen.getByText("hub-org-a-1@v2")).toBeVisible();
  });
});
