import { screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const invitation = {
  tenant: "acme",
  tenant_name: "Acme",
  email: "eve@example.org",
  role: "viewer",
  invited_by: "ada@example.org",
  expires_at: "2126-05-04T10:00:00Z",
  has_account: false,
};

describe("invitation", () => {
  beforeEach(() => {
    sessionStorage.clear();
    server.use(
      http.get("/api/session", () => HttpResponse.json({ ...data.nobody, provider: "Acme SSO" })),
      http.post("/api/invitations/read", () => HttpResponse.json(invitation)),
    );
  });

  it("makes an account with the link's token and leads into the tenant", async () => {
    let sent: unknown;
    server.use(
      http.post("/api/invitations/accept", async ({ request }) => {
        sent = await request.json();
        return HttpResponse.json(data.session);
      }),
    );
    const { user, router } = openConsole("/invitation#secret");
    await user.type(await screen.findByTestId("invitation-name"), "Eve");
    await user.type(screen.getByTestId("invitation-password"), "a long pass phrase");
    await user.click(screen.getByTestId("invitation-accept"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/t/acme"));
    expect(sent).toEqual({ token: "secret", name: "Eve", password: "a long pass phrase" });
  });

  it("keeps the token out of every address on the way through the provider", async () => {
    openConsole("/invitation#secret");
    expect(await screen.findByTestId("login-provider")).toHaveAttribute("href", "/api/oidc/start?next=%2Finvitation");
    expect(sessionStorage.getItem("lorikeet-invitation")).toBe("secret");
  });

  it("does not join as somebody else", async () => {
    server.use(http.get("/api/session", () => HttpResponse.json(data.session)));
    openConsole("/invitation#secret");
    expect(await screen.findByText(/You are signed in as ada@example.org/)).toBeVisible();
    expect(screen.queryByTestId("invitation-accept")).toBeNull();
  });
});
