import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const tenant = "/api/tenants/acme";
const none = {
  requests_per_minute: null,
  tokens_per_minute: null,
  tokens_per_day: null,
  tokens_per_month: null,
  concurrency: null,
  max_output_tokens: null,
};
const used = {
  requests_per_minute: 3,
  tokens_per_minute: 900,
  tokens_per_day: 85_000,
  tokens_per_month: 120_000,
  concurrency: 1,
};
const key = {
  id: "7d3c9a52-6f38-4c1e-9d43-0a1f6b1f7c11",
  name: "ci",
  prefix: "abcdefgh",
  limits: { ...none, concurrency: 2 },
  used,
};

function serve(counters_reachable = true) {
  const usage = {
    counters_reachable,
    tenant: {
      limits: {
        ...none,
        tokens_per_day: 100_000,
        requests_per_minute: 3,
        adapters: 10,
        storage_bytes: null,
        max_rank: 64,
      },
      used: { ...used, adapters: 2, storage_bytes: 4_200_000, concurrency: null },
    },
    keys: [key],
  };
  server.use(http.get(`${tenant}/limits`, () => HttpResponse.json(usage)));
}

describe("limits", () => {
  it("shows what is used of each limit, and says what is not counted", async () => {
    serve();
    openConsole("/t/acme/limits");
    const card = await screen.findByTestId("tenant-limits");
    expect(within(card).getByRole("progressbar", { name: "Tokens today: 85% used" })).toHaveAttribute(
      "aria-valuenow",
      "85",
    );
    expect(card).toHaveTextContent("used up: further requests are refused");
    expect(card).toHaveTextContent("not counted because it has no limit");
    expect(card).toHaveTextContent("Adapters up to rank 64");
    expect(within(card).queryByRole("progressbar", { name: /Storage/ })).toBeNull();
    expect(screen.getByRole("row", { name: /ci .* 1 of 2/ })).toBeVisible();
  });

  it("says when the counters cannot be reached", async () => {
    serve(false);
    openConsole("/t/acme/limits");
    expect(await screen.findByText(/usage counters are unreachable/)).toBeVisible();
  });

  it("sets a key's limits; an empty field is none", async () => {
    serve();
    let sent: unknown;
    server.use(
      http.put(`${tenant}/keys/${key.id}/limits`, async ({ request }) => {
        sent = await request.json();
        return HttpResponse.json(none);
      }),
    );
    openConsole("/t/acme/limits");
    await userEvent.click(await screen.findByRole("button", { name: "Edit limits of ci" }));
    await userEvent.type(await screen.findByLabelText("Requests per minute"), "sixty");
    await userEvent.click(screen.getByTestId("limits-save"));
    expect(await screen.findByText("Enter a whole number, or leave the field empty for no limit.")).toBeVisible();
    await userEvent.clear(screen.getByLabelText("Requests per minute"));
    await userEvent.type(screen.getByLabelText("Requests per minute"), "60");
    await userEvent.clear(screen.getByLabelText("Concurrent choices"));
    await userEvent.click(screen.getByTestId("limits-save"));
    await waitFor(() => expect(sent).toEqual({ ...none, requests_per_minute: 60 }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  });
});

describe("limits, as an operator", () => {
  it("sets the tenant's", async () => {
    serve();
    let sent: Record<string, unknown> = {};
    server.use(
      http.get("/api/session", () =>
        HttpResponse.json({ ...data.session, user: { ...data.session.user, is_operator: true } }),
      ),
      http.put("/api/operator/tenants/acme/limits", async ({ request }) => {
        sent = (await request.json()) as Record<string, unknown>;
        return HttpResponse.json(sent);
      }),
    );
    openConsole("/t/acme/limits");
    await userEvent.click(await screen.findByTestId("tenant-limits-edit"));
    expect(await screen.findByLabelText("Rank")).toHaveValue("64");
    await userEvent.type(screen.getByLabelText("Storage"), "10 bushels");
    await userEvent.click(screen.getByTestId("limits-save"));
    expect(
      await screen.findByText("Enter a size such as 10 GiB or 500 MB, or leave the field empty for no limit."),
    ).toBeVisible();
    await userEvent.clear(screen.getByLabelText("Storage"));
    await userEvent.type(screen.getByLabelText("Storage"), "1.5 GiB");
    await userEvent.type(screen.getByLabelText("Pinned memory"), "512 MiB");
    await userEvent.click(screen.getByTestId("limits-save"));
    await waitFor(() =>
      expect(sent).toMatchObject({
        storage_bytes: 1.5 * 2 ** 30,
        max_rank: 64,
        tokens_per_day: 100_000,
        concurrency: null,
        pinned_bytes: 512 * 2 ** 20,
      }),
    );
  });

  it("is for nobody else", async () => {
    serve();
    openConsole("/t/acme/limits");
    await screen.findByTestId("tenant-limits");
    expect(screen.queryByTestId("tenant-limits-edit")).toBeNull();
  });
});

it("shows the limits of a thousand keys a page at a time, and finds by name", async () => {
  const requests: URLSearchParams[] = [];
  server.use(
    http.get(`${tenant}/limits`, ({ request }) => {
      requests.push(new URL(request.url).searchParams);
      const of = {
        limits: { ...none, adapters: null, storage_bytes: null, max_rank: null },
        used: { ...used, adapters: 2, storage_bytes: 1 },
      };
      return HttpResponse.json(
        { counters_reachable: true, tenant: of, keys: [key] },
        { headers: { "X-Total-Count": "1000" } },
      );
    }),
  );
  const { user, router } = openConsole("/t/acme/limits");
  expect(await screen.findByText("1–50 of 1,000")).toBeVisible();
  await user.type(screen.getByRole("searchbox"), "ci");
  await waitFor(() => expect(requests.at(-1)!.get("search")).toBe("ci"));
  expect(router.state.location.search).toEqual({ q: "ci" });
});
