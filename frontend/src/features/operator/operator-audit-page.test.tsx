import { screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { AuditEvent } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const event: AuditEvent = {
  id: 7,
  tenant: "globex",
  action: "key.create",
  actor: { kind: "user", id: "u2", label: "hank@globex.example" },
  target: { kind: "apikey", id: "k2", label: "backend" },
  detail: {},
  request_id: "req_1",
  created_at: "2026-05-04T10:00:00Z",
};

describe("the audit log of all tenants", () => {
  it("says whose each row is, filters by tenant, and gives the same as a file", async () => {
    const requests: string[] = [];
    const user = data.session.user && { ...data.session.user, is_operator: true };
    server.use(
      http.get("/api/session", () => HttpResponse.json({ ...data.session, user })),
      http.get("/api/operator/audit", ({ request }) => {
        requests.push(new URL(request.url).search);
        return HttpResponse.json({
          events: [event, { ...event, id: 6, tenant: null, action: "session.create" }],
          next: null,
        });
      }),
    );
    const { user: person, router } = openConsole("/t/acme/operator/audit");
    expect(await screen.findByText("globex")).toBeInTheDocument();
    expect(screen.getByText("no tenant")).toBeInTheDocument();
    expect(screen.getByRole("link", { name: "Download CSV" })).toHaveAttribute("href", "/api/operator/audit.csv");
    await person.type(screen.getByRole("searchbox", { name: "Tenant" }), "globex");
    await waitFor(() => expect(requests.at(-1)).toBe("?tenant=globex"));
    expect(screen.getByRole("link", { name: "Download CSV" })).toHaveAttribute(
      "href",
      "/api/operator/audit.csv?tenant=globex",
    );
    expect(router.state.location.search).toEqual({ of: "globex" });
    await person.click(await screen.findByRole("button", { name: /^session.create/ }));
    expect(router.state.location.search).toEqual({ of: "globex", open: 6 });
    expect(screen.getByText("apikey backend (k2)")).toBeVisible();
  });
});
