import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const path = "/api/tenants/acme/keys";

function serve(total: number) {
  const requests: URLSearchParams[] = [];
  server.use(
    http.get(path, ({ request }) => {
      requests.push(new URL(request.url).searchParams);
      return HttpResponse.json([data.key], { headers: { "X-Total-Count": String(total) } });
    }),
  );
  return requests;
}

it("asks the server for pages of keys, and finds by name", async () => {
  const requests = serve(1000);
  const { user, router } = openConsole("/t/acme/keys");
  expect(await screen.findByText("1–50 of 1,000")).toBeInTheDocument();
  await user.click(screen.getByRole("button", { name: "Next" }));
  await waitFor(() => expect(requests.at(-1)!.get("offset")).toBe("50"));
  expect(router.state.location.search).toEqual({ page: 1 });
  await user.type(screen.getByRole("searchbox"), "back");
  await waitFor(() => expect(requests.at(-1)!.get("search")).toBe("back"));
  expect(router.state.location.search).toEqual({ q: "back" });
});

it("sorts at the server, and lists revoked keys apart", async () => {
  const requests = serve(3);
  const { user, router } = openConsole("/t/acme/keys");
  const table = await screen.findByRole("table", { name: "API keys" });
  expect(requests.at(-1)!.get("state")).toBe("not_revoked");
  expect(within(table).getByRole("columnheader", { name: "Permissions" })).toBeInTheDocument();
  await user.click(within(table).getByRole("button", { name: "Last used" }));
  await waitFor(() => expect(requests.at(-1)!.get("sort")).toBe("last_used_at"));
  await user.click(screen.getByRole("radio", { name: "Revoked" }));
  await waitFor(() => expect(requests.at(-1)!.get("state")).toBe("revoked"));
  expect(router.state.location.search).toEqual({ sort: "last_used_at", revoked: true });
});

it("shows a new secret until it is put away: Escape does not lose it", async () => {
  serve(1);
  server.use(http.post(path, () => HttpResponse.json({ ...data.key, secret: "lk_once_only" }, { status: 201 })));
  const { user } = openConsole("/t/acme/keys?create=true");
  const dialog = await screen.findByRole("dialog");
  await user.type(within(dialog).getByRole("textbox", { name: "Name" }), "backend");
  await user.click(within(dialog).getByRole("button", { name: "Create key" }));
  expect(await screen.findByTestId("key-secret")).toHaveTextContent("lk_once_only");
  await user.keyboard("{Escape}");
  expect(screen.getByTestId("key-secret")).toBeInTheDocument();
  await user.click(screen.getByRole("button", { name: "Done" }));
  await waitFor(() => expect(screen.queryByTestId("key-secret")).toBeNull());
});

it("the palette finds actions, adapters by the server, and a request by its id", async () => {
  const requests: string[] = [];
  serve(1);
  server.use(
    http.get("/api/tenants/acme/adapters", ({ request }) => {
      requests.push(new URL(request.url).search);
      return HttpResponse.json([data.adapter]);
    }),
  );
  const { user, router } = openConsole("/t/acme/keys");
  await screen.findByText("API keys", { selector: "h1" });
  await user.keyboard("{Control>}k{/Control}");
  const input = await screen.findByPlaceholderText(/Go to a page/);
  await user.type(input, "supp");
  await waitFor(() => expect(requests).toContain("?search=supp&limit=8"));
  await user.clear(input);
  await user.type(input, "invite");
  expect(await screen.findByText("Invite a person")).toBeInTheDocument();
  await user.clear(input);
  await user.type(input, "req_abc");
  await user.click(await screen.findByText(/Open request/));
  await waitFor(() => expect(router.state.location.search).toMatchObject({ id: "req_abc" }));
});
