import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it, vi } from "vitest";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const APP = { created_at: "2026-05-04T10:00:00Z", last_used_at: null };
const user = (second_factor: boolean) => data.session.user && { ...data.session.user, second_factor };

/** A server whose person may add an authenticator app. */
function serve(overrides: Partial<typeof data.noSecondFactors> = {}) {
  let factors = { ...data.noSecondFactors, ...overrides };
  server.use(
    http.get("/api/session", () => HttpResponse.json({ ...data.session, user: user(factors.app !== null) })),
    http.get("/api/second-factors", () => HttpResponse.json(factors)),
    http.get("/api/session/confirmation", () => HttpResponse.json({ app: false, passkey: false, password: true })),
    http.post("/api/session/confirmation", async ({ request }) => {
      const { password } = (await request.json()) as { password: string };
      if (password !== "right") return refusal(400, "wrong_password", "The password is wrong.", "Try again.");
      factors = { ...factors, confirmed: true };
      return HttpResponse.json(data.session);
    }),
    http.post("/api/second-factors/app", () =>
      HttpResponse.json({ secret: "ABCDEFGH", uri: "otpauth://totp/x", qr: ["10", "01"] }, { status: 201 }),
    ),
    http.post("/api/second-factors/app/confirm", async ({ request }) => {
      const { code } = (await request.json()) as { code: string };
      if (code !== "123456") return refusal(400, "wrong_code", "The code is wrong.", "Enter the next one.");
      factors = { ...factors, app: APP, recovery_codes_left: 10 };
      return HttpResponse.json({ recovery_codes: ["aaaaa-bbbbb", "ccccc-ddddd"] });
    }),
  );
}

describe("second factors", () => {
  it("asks for the password first, then for a code, and shows the recovery codes once", async () => {
    serve({ confirmed: false });
    const { user: person } = openConsole("/t/acme/account?tab=security");
    await person.click(await screen.findByTestId("set-up-app"));
    await person.type(await screen.findByTestId("confirm-password"), "wrong");
    await person.click(screen.getByTestId("confirm-identity"));
    expect(await screen.findByRole("alert")).toHaveTextContent("The password is wrong.");
    await person.clear(screen.getByTestId("confirm-password"));
    await person.type(screen.getByTestId("confirm-password"), "right");
    await person.click(screen.getByTestId("confirm-identity"));
    expect(await screen.findByRole("img", { name: /QR code/ })).toBeVisible();
    expect(screen.getByTestId("app-secret")).toHaveTextContent("ABCD EFGH");
    await person.type(screen.getByTestId("app-code"), "000000");
    await person.click(screen.getByTestId("app-finish"));
    expect(await screen.findByRole("alert")).toHaveTextContent("The code is wrong.");
    await person.clear(screen.getByTestId("app-code"));
    await person.type(screen.getByTestId("app-code"), "123456");
    await person.click(screen.getByTestId("app-finish"));
    expect(within(await screen.findByTestId("recovery-codes")).getAllByRole("listitem")).toHaveLength(2);
    await person.click(screen.getByRole("button", { name: "Done" }));
    expect(await screen.findByText(/10 of 10 left/)).toBeVisible();
    expect(screen.queryByTestId("recovery-codes")).toBeNull();
  });

  it("says where there are no passkeys", async () => {
    serve({ passkeys_available: false });
    openConsole("/t/acme/account?tab=security");
    expect(await screen.findByText(/only to pages with a host name and HTTPS/)).toBeVisible();
    expect(screen.queryByTestId("add-passkey")).toBeNull();
  });
});

describe("a tenant that requires one", () => {
  const tenants = data.session.tenants.map((tenant) => ({
    ...tenant,
    capabilities: [],
    second_factor_required: true,
  }));

  it("leads to the set-up, and back to where one wanted to go", async () => {
    let has = false;
    serve({ required_by: ["Acme"] });
    server.use(http.get("/api/session", () => HttpResponse.json({ ...data.session, user: user(has), tenants })));
    const { router, user: person } = openConsole("/t/acme/keys");
    await waitFor(() => expect(router.state.location.pathname).toBe("/second-factor"));
    expect(await screen.findByText(/Acme requires two-factor authentication/)).toBeVisible();
    expect(screen.queryByTestId("continue")).toBeNull();
    await person.click(await screen.findByTestId("set-up-app"));
    await person.type(await screen.findByTestId("app-code"), "123456");
    has = true;
    await person.click(screen.getByTestId("app-finish"));
    await person.click(await screen.findByRole("button", { name: "Done" }));
    await person.click(await screen.findByTestId("continue"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/t/acme/keys"));
  });

  it("is noticed while the console is open", async () => {
    let required = false;
    server.use(
      http.get("/api/session", () => HttpResponse.json(required ? { ...data.session, tenants } : data.session)),
      http.get("/api/tenants/acme/keys", () =>
        required
          ? refusal(403, "second_factor_required", "You need a second factor.", "Set one up.")
          : HttpResponse.json([data.key]),
      ),
    );
    const { router } = openConsole("/t/acme");
    await screen.findByRole("heading", { name: "Overview", level: 1 });
    required = true;
    await router.navigate({ to: "/t/$tenant/keys", params: { tenant: "acme" } });
    await waitFor(() => expect(router.state.location.pathname).toBe("/second-factor"));
  });
});

describe("signing in with a second factor", () => {
  const waiting = { ...data.nobody, second_factor_for: "ada@example.org" };
  beforeEach(() =>
    server.use(
      http.get("/api/session", () => HttpResponse.json(waiting)),
      http.get("/api/session/second-factor", () => HttpResponse.json({ app: true, passkey: true, password: false })),
      http.post("/api/session/second-factor", async ({ request }) => {
        const body = (await request.json()) as { code?: string; credential?: { response: object } };
        if (body.code === "123456" || body.credential) return HttpResponse.json(data.session);
        return refusal(400, "wrong_code", "The code is wrong.", "Enter the next one.");
      }),
    ),
  );

  it("takes a code, and lets somebody else begin again", async () => {
    server.use(http.delete("/api/session", () => HttpResponse.json(data.nobody)));
    const { router, user: person } = openConsole("/login?next=%2Ft%2Facme%2Fkeys");
    expect(await screen.findByText("ada@example.org")).toBeVisible();
    expect(screen.getByTestId("code")).toHaveFocus();
    await person.keyboard("{Enter}");
    expect(screen.getByTestId("code")).toHaveAccessibleDescription("Enter a code.");
    await person.type(screen.getByTestId("code"), "1");
    await person.click(screen.getByTestId("code-submit"));
    expect(await screen.findByRole("alert")).toHaveTextContent("The code is wrong.");
    await person.clear(screen.getByTestId("code"));
    await person.type(screen.getByTestId("code"), "123456");
    await person.click(screen.getByTestId("code-submit"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/t/acme/keys"));
  });

  it("begins again for somebody else", async () => {
    server.use(http.delete("/api/session", () => HttpResponse.json(data.nobody)));
    const { user: person } = openConsole("/login");
    await person.click(await screen.findByRole("button", { name: "Sign in as somebody else" }));
    expect(await screen.findByTestId("login-email")).toBeVisible();
  });

  it("takes a passkey, and stays where the person cancels", async () => {
    const bytes = (text: string) => new TextEncoder().encode(text).buffer;
    const credential = {
      id: "AA",
      rawId: bytes("a"),
      type: "public-key",
      response: { clientDataJSON: bytes("{}"), authenticatorData: bytes("b"), signature: bytes("c"), userHandle: null },
    };
    const get = vi
      .fn<(options: CredentialRequestOptions) => Promise<unknown>>()
      .mockRejectedValueOnce(new DOMException("cancelled", "NotAllowedError"))
      .mockResolvedValueOnce(credential);
    vi.stubGlobal("PublicKeyCredential", class {});
    Object.defineProperty(navigator, "credentials", { value: { get }, configurable: true });
    server.use(
      http.post("/api/session/passkey", () =>
        HttpResponse.json({ challenge: "_-8", rpId: "x", allowCredentials: [{ type: "public-key", id: "AA" }] }),
      ),
    );
    const { router, user: person } = openConsole("/login");
    await person.click(await screen.findByTestId("use-passkey"));
    await waitFor(() => expect(screen.getByTestId("use-passkey")).toBeEnabled());
    expect(router.state.location.pathname).toBe("/login");
    await person.click(screen.getByTestId("use-passkey"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/t/acme"));
    const { publicKey } = get.mock.calls[0]![0];
    expect([...new Uint8Array(publicKey!.challenge as ArrayBuffer)]).toEqual([255, 239]);
    Reflect.deleteProperty(navigator, "credentials");
    vi.unstubAllGlobals();
  });
});
