import { screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

async function signIn(
  user: ReturnType<typeof openConsole>["user"],
  email = "ada@example.org",
  password = "secret-secret",
) {
  await user.type(await screen.findByTestId("login-email"), email);
  if (password) await user.type(screen.getByTestId("login-password"), password);
  await user.click(screen.getByTestId("login-submit"));
}

describe("login", () => {
  beforeEach(() => server.use(http.get("/api/session", () => HttpResponse.json(data.nobody))));

  it("shows the server's message, fix and request id unchanged", async () => {
    server.use(
      http.post("/api/session", () =>
        refusal(401, "wrong_credentials", "E-mail and password do not match.", "Check both."),
      ),
    );
    const { user } = openConsole("/login");
    await signIn(user);
    const alert = await screen.findByRole("alert");
    expect(alert).toHaveTextContent("E-mail and password do not match.");
    expect(alert).toHaveTextContent("Check both.");
    expect(alert).toHaveTextContent("req_7");
  });

  it("says when the server is away", async () => {
    server.use(http.post("/api/session", () => HttpResponse.error()));
    const { user } = openConsole("/login");
    await signIn(user);
    expect(await screen.findByRole("alert")).toHaveTextContent("cannot reach the server");
  });

  it("asks for a whole address and a password before it sends", async () => {
    const { user } = openConsole("/login");
    await signIn(user, "ada", "");
    expect(await screen.findByText("Enter the e-mail address of your account.")).toBeVisible();
    expect(screen.getByText("Enter your password.")).toBeVisible();
    expect(screen.getByTestId("login-email")).toHaveAccessibleDescription("Enter the e-mail address of your account.");
  });

  it("sends the CSRF token and leads back to where one wanted to go", async () => {
    server.use(
      http.post("/api/session", ({ request }) =>
        request.headers.get("x-csrftoken") === "csrf-0"
          ? HttpResponse.json(data.session)
          : refusal(403, "csrf", "No token.", "Reload."),
      ),
    );
    const { user, router } = openConsole("/t/acme/keys");
    await waitFor(() => expect(router.state.location.href).toBe("/login?next=%2Ft%2Facme%2Fkeys"));
    await signIn(user);
    await waitFor(() => expect(router.state.location.pathname).toBe("/t/acme/keys"));
    expect(await screen.findByText("backend")).toBeVisible();
  });

  it("goes back to the login when the session ends elsewhere", async () => {
    server.use(http.get("/api/session", () => HttpResponse.json(data.session), { once: true }));
    server.use(http.get("/api/tenants/acme/keys", () => refusal(401, "not_authenticated", "No session.", "Log in.")));
    server.use(http.get("/api/session", () => HttpResponse.json(data.nobody)));
    server.use(http.get("/api/session", () => HttpResponse.json(data.session), { once: true }));
    const { router } = openConsole("/t/acme/keys");
    await waitFor(() => expect(router.state.location.pathname).toBe("/login"));
  });
});
