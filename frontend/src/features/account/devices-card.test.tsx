import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0";
const device = (id: string, user_agent: string, current = false) => ({
  id,
  current,
  user_agent,
  address: "192.0.2.1",
  created_at: "2026-05-04T10:00:00Z",
  last_seen_at: "2026-05-04T11:00:00Z",
});

function serve() {
  let listed = [device("a", FIREFOX, true), device("b", "curl/8.5.0"), device("c", "")];
  server.use(
    http.get("/api/sessions", () => HttpResponse.json(listed)),
    http.delete("/api/sessions/:id", ({ params }) => {
      listed = listed.filter(({ id }) => id !== params.id);
      return new HttpResponse(null, { status: 204 });
    }),
    http.delete("/api/sessions", () => {
      listed = listed.filter(({ current }) => current);
      return new HttpResponse(null, { status: 204 });
    }),
  );
}

describe("devices", () => {
  it("marks this one, and signs out one or all others", async () => {
    serve();
    openConsole("/t/acme/account?tab=security");
    const list = await screen.findByRole("list", { name: "Devices" });
    const thisDevice = within(list).getByText("Firefox on Linux").closest("li") as HTMLElement;
    expect(thisDevice).toHaveTextContent("This device");
    expect(within(thisDevice).queryByRole("button")).toBeNull();
    await userEvent.click(within(list).getByRole("button", { name: /Sign out curl/ }));
    await waitFor(() => expect(within(list).getAllByRole("listitem")).toHaveLength(2));
    await userEvent.click(screen.getByTestId("end-others"));
    const dialog = await screen.findByRole("alertdialog");
    expect(dialog).toHaveTextContent("Ends 1 other session immediately");
    await userEvent.click(within(dialog).getByRole("button", { name: "Sign out" }));
    await waitFor(() => expect(within(list).getAllByRole("listitem")).toHaveLength(1));
    expect(screen.queryByTestId("end-others")).toBeNull();
  });
});
