import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { Batch, StoredFile } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const tenant = "/api/tenants/acme";
const file: StoredFile = {
  id: "file-1",
  name: "requests.jsonl",
  purpose: "batch",
  bytes: 1200,
  created_at: data.key.created_at,
  expires_at: "2030-01-01T00:00:00Z",
};
const batch: Batch = {
  id: "batch_1",
  endpoint: "/v1/chat/completions",
  state: "in_progress",
  key: "backend",
  counts: { total: 4, completed: 2, failed: 1 },
  bad_lines: 0,
  input_file: file,
  output_file: null,
  error_file: null,
  created_at: data.key.created_at,
  expires_at: "2030-01-01T00:00:00Z",
};

const serve = (...batches: Batch[]) =>
  server.use(
    http.get(`${tenant}/batches`, () => HttpResponse.json(batches)),
    http.get(`${tenant}/files`, () => HttpResponse.json(batches.length ? [file] : [])),
  );

describe("batches", () => {
  it("shows how far one is, and cancels it", async () => {
    serve(batch);
    let cancelled = 0;
    server.use(
      http.post(`${tenant}/batches/batch_1/cancel`, () =>
        HttpResponse.json({ ...batch, state: ++cancelled && "cancelling" }),
      ),
    );
    const { user } = openConsole("/t/acme/batches");
    const row = await screen.findByRole("button", { name: /requests\.jsonl.*Running.*3 of 4.*1 failed/ });
    await user.click(row);
    expect(screen.getByRole("link", { name: /^Requests 1/ })).toHaveAttribute("href", `${tenant}/files/file-1/content`);
    await user.click(screen.getByRole("button", { name: "Cancel batch" }));
    await user.click(within(screen.getByRole("alertdialog")).getByRole("button", { name: "Cancel batch" }));
    await expect.poll(() => cancelled).toBe(1);
    await waitFor(() => expect(screen.queryByRole("alertdialog")).toBeNull());
  });

  it("opens the batch that the address names", async () => {
    serve(batch);
    openConsole("/t/acme/batches?batch=batch_1");
    expect(await screen.findByRole("button", { name: "Cancel batch" })).toBeVisible();
  });

  it("names the lines that are no requests", async () => {
    serve({ ...batch, state: "failed", bad_lines: 1 });
    server.use(
      http.get(`${tenant}/batches/batch_1/errors`, () =>
        HttpResponse.json([{ line: 3, code: "invalid_method", message: "method must be POST.", param: "method" }]),
      ),
    );
    const { user } = openConsole("/t/acme/batches");
    await user.click(await screen.findByRole("button", { name: /1 problem in the file/ }));
    expect(await screen.findByText("method must be POST.")).toBeVisible();
  });

  it("sends a file as one of thousands of keys, and says why it is refused", async () => {
    serve();
    let sent: FormData | undefined;
    const searches: string[] = [];
    server.use(
      http.post(`${tenant}/batches`, async ({ request }) => {
        sent = await request.formData();
        return refusal(429, "too_many_batches", "20 batches are open already.", "Wait until one is over.");
      }),
    );
    const { user } = openConsole("/t/acme/batches");
    server.use(
      http.get(`${tenant}/keys`, ({ request }) => {
        const query = new URL(request.url).searchParams;
        searches.push(`${query.get("state")} ${query.get("scope")} ${query.get("search")}`);
        const matches = query.get("search") === "nightly" || query.get("search") === "k2";
        const key = matches ? { ...data.key, id: "k2", name: "nightly" } : data.key;
        return HttpResponse.json([key], { headers: { "X-Total-Count": matches ? "1" : "4221" } });
      }),
    );
    await user.click(await screen.findByTestId("new-batch"));
    await user.upload(screen.getByTestId("batch-file"), new File(["{}"], "requests.jsonl"));
    const picker = await screen.findByRole("combobox", { name: "API key" });
    await waitFor(() => expect(picker).toHaveTextContent("backend"));
    await user.click(picker);
    expect(await screen.findByText("4,220 more. Type to find one of them.")).toBeVisible();
    await user.type(screen.getByPlaceholderText("Search by name or key prefix"), "nightly");
    await user.click(await screen.findByRole("option", { name: /nightly/ }));
    await waitFor(() => expect(picker).toHaveTextContent("nightly"));
    expect(searches).toContain("usable infer nightly");
    await user.click(screen.getByTestId("batch-submit"));
    expect(await screen.findByText("Wait until one is over.")).toBeVisible();
    expect(sent?.get("key")).toBe("k2");
    expect(sent?.get("endpoint")).toBe("/v1/chat/completions");
  });

  it("says that the list cannot be read", async () => {
    serve();
    server.use(
      http.get(`${tenant}/batches`, () =>
        refusal(503, "database_unavailable", "The database does not answer.", "Try again soon."),
      ),
    );
    openConsole("/t/acme/batches");
    expect(await screen.findByText("Try again soon.")).toBeVisible();
  });
});

describe("browser origins", () => {
  it("adds one and removes one", async () => {
    let origins = ["https://a.example"];
    server.use(
      http.get(`${tenant}/recording`, () => HttpResponse.json({ enabled: false, days: 30 })),
      http.get(`${tenant}/origins`, () => HttpResponse.json({ origins })),
      http.put(`${tenant}/origins`, async ({ request }) => {
        ({ origins } = (await request.json()) as { origins: string[] });
        return HttpResponse.json({ origins });
      }),
    );
    const { user } = openConsole("/t/acme/settings");
    await user.type(await screen.findByTestId("origin"), "https://b.example/path{Enter}");
    expect(await screen.findByText(/without a path/)).toBeVisible();
    await user.clear(screen.getByTestId("origin"));
    await user.type(screen.getByTestId("origin"), "https://b.example{Enter}");
    expect(await screen.findByText("https://b.example")).toBeVisible();
    await user.click(screen.getByRole("button", { name: "Remove https://a.example" }));
    await expect.poll(() => origins).toEqual(["https://b.example"]);
  });
});
