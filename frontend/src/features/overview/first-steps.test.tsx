import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

function serve(first_steps: Partial<typeof data.overview.first_steps>, slug = "acme") {
  const membership = data.session.tenants[0];
  const may = membership && {
    ...membership,
    slug,
    capabilities: [...new Set([...membership.capabilities, "adapters.write", "members.write"])],
  };
  server.use(
    http.get("/api/session", () => HttpResponse.json({ ...data.session, tenants: [may] })),
    http.get("/api/tenants/acme/overview", () =>
      HttpResponse.json({ ...data.overview, first_steps: { ...data.overview.first_steps, ...first_steps } }),
    ),
  );
}

describe("first steps", () => {
  beforeEach(() => localStorage.clear());

  it("say what is left to do, until it is hidden", async () => {
    serve({ called: true });
    const { user } = openConsole("/t/acme");
    const card = await screen.findByTestId("first-steps");
    expect(card).toHaveTextContent("2 of 4 done");
    expect(
      within(card)
        .getAllByRole("link")
        .map((link) => link.textContent?.trim()),
    ).toEqual(["Open limits", "Open members"]);
    await user.click(within(card).getByRole("button", { name: "Hide first steps" }));
    await waitFor(() => expect(screen.queryByTestId("first-steps")).toBeNull());
    expect(localStorage.getItem("lorikeet.hidden.first-steps.acme")).toBe("1");
  });

  it("are gone when all is done", async () => {
    serve({ uploaded: true, called: true, limited: true, invited: true });
    openConsole("/t/acme");
    expect(await screen.findByText("Recent requests")).toBeVisible();
    expect(screen.queryByTestId("first-steps")).toBeNull();
  });
});
