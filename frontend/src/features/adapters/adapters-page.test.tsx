import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

function serve(total: number) {
  const requests: URLSearchParams[] = [];
  server.use(
    http.get("/api/tenants/acme/adapters", ({ request }) => {
      requests.push(new URL(request.url).searchParams);
      return HttpResponse.json([data.adapter], { headers: { "X-Total-Count": String(total) } });
    }),
  );
  return requests;
}

it("asks the server for a page of adapters, searched, filtered and sorted, all in the address", async () => {
  const requests = serve(10_000);
  const { user, router } = openConsole("/t/acme/adapters?page=3");
  expect(await screen.findByText("151–200 of 10,000")).toBeVisible();
  expect(Object.fromEntries(requests[0]!)).toEqual({ search: "", sort: "name", offset: "150", limit: "50" });
  await user.click(screen.getByRole("button", { name: "Size" }));
  await user.click(screen.getByRole("button", { name: "Size" }));
  await waitFor(() => expect(requests.at(-1)!.get("sort")).toBe("-bytes"));
  expect(screen.getByRole("columnheader", { name: "Size" })).toHaveAttribute("aria-sort", "descending");
  await user.click(within(screen.getByRole("radiogroup", { name: "Status" })).getByRole("radio", { name: "Failed" }));
  await user.type(screen.getByRole("searchbox"), "law");
  await waitFor(() => expect(requests.at(-1)!.get("search")).toBe("law"));
  expect(router.state.location.search).toEqual({ q: "law", status: "failed", sort: "-bytes" });
  expect(requests.at(-1)!.get("offset")).toBe("0");
});

it("tells no adapters from none that fit", async () => {
  serve(0);
  const { user } = openConsole("/t/acme/adapters?q=nothing");
  expect(await screen.findByText("No matches")).toBeVisible();
  await user.click(screen.getByRole("button", { name: "Show all adapters" }));
  expect(await screen.findByText("No adapters yet")).toBeVisible();
});
