import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import type { Invitation, Member } from "@/api/types";
import { current } from "@/components/toast";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const AT = "2026-05-04T10:00:00Z";
const ada: Member = {
  id: "u1",
  email: "ada@example.org",
  name: "Ada",
  role: "owner",
  joined_at: AT,
  second_factor: true,
  address_proven: true,
};
const bob: Member = {
  id: "u2",
  email: "bob@example.org",
  name: "",
  role: "viewer",
  joined_at: AT,
  second_factor: false,
  address_proven: false,
};
const open: Invitation = {
  id: "i1",
  email: "eve@example.org",
  role: "admin",
  invited_by: "ada@example.org",
  created_at: AT,
  expires_at: "2126-05-04T10:00:00Z",
};

describe("members", () => {
  beforeEach(() =>
    server.use(
      http.get("/api/tenants/acme/members", () => HttpResponse.json([ada, bob])),
      http.get("/api/tenants/acme/invitations", () => HttpResponse.json([open])),
    ),
  );

  it("changes a role and shows a refusal in the server's words", async () => {
    let requests: unknown;
    server.use(
      http.patch("/api/tenants/acme/members/u2", async ({ request }) => {
        requests = await request.json();
        return refusal(
          409,
          "last_owner",
          "The tenant would be left without an owner.",
          "Make somebody else an owner first.",
        );
      }),
    );
    const { user } = openConsole("/t/acme/members");
    await user.selectOptions(await screen.findByLabelText("Role of bob@example.org"), "developer");
    await waitFor(() =>
      expect(current().at(-1)).toMatchObject({ tone: "bad", title: "The tenant would be left without an owner." }),
    );
    expect(requests).toEqual({ role: "developer" });
  });

  it("says whose address nobody has proven", async () => {
    openConsole("/t/acme/members");
    expect(await screen.findByRole("row", { name: /bob@example.org.*address not verified/ })).toBeVisible();
    expect(screen.getAllByText("address not verified")).toHaveLength(1);
  });

  it("shows an invitation's link once", async () => {
    server.use(
      http.post("/api/tenants/acme/invitations", () =>
        HttpResponse.json({ ...open, link: "https://x.example/invitation#secret", mailed: false }, { status: 201 }),
      ),
      http.get("/api/session", () => HttpResponse.json({ ...data.session, sends_mail: false })),
    );
    const { user } = openConsole("/t/acme/members");
    await user.click(await screen.findByTestId("invite"));
    await user.type(await screen.findByTestId("invite-email"), "eve@example.org");
    expect(screen.getByRole("dialog")).toHaveTextContent("You get a link to pass on");
    await user.click(screen.getByTestId("invite-submit"));
    expect(await screen.findByText(/send it to .*: no mail server is set up, so no e-mail is sent/)).toBeVisible();
    expect(await screen.findByTestId("invite-link")).toHaveTextContent("https://x.example/invitation#secret");
    await user.click(screen.getByRole("button", { name: "Done" }));
    await waitFor(() => expect(screen.queryByTestId("invite-link")).toBeNull());
  });

  it("pages, searches and sorts at the server, and the address says how", async () => {
    const requests: string[] = [];
    server.use(
      http.get("/api/tenants/acme/members", ({ request }) => {
        requests.push(new URL(request.url).search);
        return HttpResponse.json([ada, bob], { headers: { "X-Total-Count": "120" } });
      }),
      http.get("/api/tenants/acme/invitations", ({ request }) => {
        requests.push(new URL(request.url).search);
        return HttpResponse.json([open], { headers: { "X-Total-Count": "45" } });
      }),
    );
    const { user, router } = openConsole("/t/acme/members?page=1");
    expect(await screen.findByText("51–100 of 120")).toBeVisible();
    expect(requests).toContain("?search=&sort=email&offset=50&limit=50");
    await user.click(screen.getByRole("button", { name: "Role" }));
    expect(router.state.location.search).toEqual({ sort: "role" });
    await user.click(screen.getByRole("button", { name: "Role" }));
    await user.type(screen.getByRole("searchbox", { name: "Search by name or e-mail" }), "ad");
    await waitFor(() => expect(requests).toContain("?search=ad&sort=-role&offset=0&limit=50"));
    await user.click(
      within(screen.getByRole("navigation", { name: "Pages of invitations" })).getByRole("button", { name: "Next" }),
    );
    expect(router.state.location.search).toEqual({ q: "ad", sort: "-role", invitations: 1 });
    await waitFor(() => expect(requests).toContain("?search=&offset=20&limit=20"));
  });

  it("says that nobody fits, and not that there is nobody", async () => {
    server.use(
      http.get("/api/tenants/acme/members", () => HttpResponse.json([], { headers: { "X-Total-Count": "0" } })),
    );
    openConsole("/t/acme/members?q=zzz");
    expect(await screen.findByText("No matches")).toBeVisible();
    expect(screen.getByRole("searchbox", { name: "Search by name or e-mail" })).toHaveValue("zzz");
  });

  it("asks before it removes", async () => {
    let removed = false;
    server.use(
      http.delete("/api/tenants/acme/members/u2", () => {
        removed = true;
        return new HttpResponse(null, { status: 204 });
      }),
    );
    const { user } = openConsole("/t/acme/members");
    await user.click(await screen.findByRole("button", { name: "Remove bob@example.org" }));
    const dialog = screen.getByRole("alertdialog");
    expect(removed).toBe(false);
    await user.click(within(dialog).getByRole("button", { name: "Remove" }));
    await waitFor(() => expect(removed).toBe(true));
  });
});
