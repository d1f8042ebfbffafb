import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, describe, expect, it } from "vitest";
import type { ListedBaseModel } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const served: ListedBaseModel = {
  name: "llama",
  digest: "sha256:aaaaaaaaaaaaaaaa",
  state: "served",
  hosts: ["gpu1"],
  adapters: 3,
  max_context: 8192,
  sleeps_after_s: 0,
  wanted: true,
  hosts_online: 1,
  decided_by: "ada@example.org",
  decided_at: "2026-05-04T09:00:00Z",
  withdrawn_at: null,
};
const waiting: ListedBaseModel = {
  ...served,
  name: "mistral",
  digest: "sha256:bbbbbbbbbbbbbbbb",
  state: "waiting",
  hosts: ["gpu2", "gpu3"],
  adapters: 0,
  decided_by: null,
  decided_at: null,
};

describe("base models, for operators", () => {
  const requests: unknown[] = [];
  let listed: ListedBaseModel[] = [];

  beforeEach(() => {
    requests.length = 0;
    listed = [served, waiting];
    const user = data.session.user && { ...data.session.user, is_operator: true };
    const answer = {
      name: "x",
      digest: "sha256:x",
      adapters_of: [],
      decided_by: "ada",
      decided_at: "2026-05-04T09:00:00Z",
    };
    server.use(
      http.get("/api/session", () => HttpResponse.json({ ...data.session, user })),
      http.get("/api/operator/hosts", () => HttpResponse.json([])),
      http.get("/api/operator/join-tokens", () => HttpResponse.json([])),
      http.get("/api/operator/staging", () => HttpResponse.json({ results: [], total: 0, phases: {} })),
      http.get("/api/operator/base-models", () => HttpResponse.json(listed)),
      http.post("/api/operator/base-models", async ({ request }) => {
        requests.push(await request.json());
        return HttpResponse.json(answer);
      }),
      http.patch("/api/operator/base-models/:digest", async ({ request, params }) => {
        requests.push([params.digest, await request.json()]);
        return HttpResponse.json(answer);
      }),
      http.delete("/api/operator/base-models/:digest", ({ params }) => {
        requests.push(params.digest);
        return new HttpResponse(null, { status: 204 });
      }),
    );
  });

  it("lets one that waits be approved by a name", async () => {
    const { user } = openConsole("/t/acme/operator/hosts?tab=models");
    const table = within(await screen.findByRole("table", { name: "Base models" }));
    expect(table.getByRole("row", { name: /mistral waiting .* gpu2, gpu3 0/ })).toBeVisible();
    expect(table.queryByRole("button", { name: /Withdraw/ })).not.toBeInTheDocument();
    await user.click(table.getByRole("button", { name: "Approve mistral" }));
    const dialog = within(await screen.findByRole("alertdialog", { name: "Approve mistral?" }));
    await user.clear(dialog.getByLabelText("Name"));
    await user.type(dialog.getByLabelText("Name"), "small");
    await user.click(dialog.getByRole("button", { name: "Approve" }));
    await waitFor(() => expect(requests).toEqual([{ host: "gpu2", name: "small" }]));
    await waitFor(() => expect(screen.queryByRole("alertdialog")).not.toBeInTheDocument());
  });

  it("says why a name is refused", async () => {
    server.use(
      http.patch("/api/operator/base-models/:digest", () =>
        refusal(409, "base_model_name_taken", 'Another model is called "mistral".', "Give this one another name."),
      ),
    );
    const { user } = openConsole("/t/acme/operator/hosts?tab=models");
    await user.click(await screen.findByRole("button", { name: "Rename llama" }));
    await user.click(await screen.findByRole("button", { name: "Rename" }));
    expect(await screen.findByText('Another model is called "mistral".')).toBeVisible();
  });

  it("lets one sleep, and shows whether it does", async () => {
    listed = [
      { ...served, sleeps_after_s: 1800, wanted: false, hosts_online: 0 },
      { ...waiting, state: "served", sleeps_after_s: 5400, hosts_online: 0 },
    ];
    const { user } = openConsole("/t/acme/operator/hosts?tab=models");
    const table = within(await screen.findByRole("table", { name: "Base models" }));
    expect(table.getByRole("row", { name: /llama served asleep/ })).toBeVisible();
    expect(table.getByRole("row", { name: /mistral served waking/ })).toBeVisible();
    await user.click(table.getByRole("button", { name: "Sleep of mistral" }));
    const dialog = within(await screen.findByRole("alertdialog", { name: "Sleep settings of mistral" }));
    expect(dialog.getByLabelText("Sleeps")).toHaveDisplayValue("After 1.5 hours without a request");
    await user.selectOptions(dialog.getByLabelText("Sleeps"), "After 15 minutes without a request");
    await user.click(dialog.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(requests).toEqual([[waiting.digest, { sleeps_after_s: 900 }]]));
  });

  it("lets one of several be withdrawn", async () => {
    listed = [served, { ...waiting, state: "served" }];
    const { user } = openConsole("/t/acme/operator/hosts?tab=models");
    await user.click(await screen.findByRole("button", { name: "Withdraw llama" }));
    const dialog = within(await screen.findByRole("alertdialog", { name: "Withdraw llama?" }));
    expect(dialog.getByText(/its 3 adapters can no longer be called/)).toBeVisible();
    await user.click(dialog.getByRole("button", { name: "Withdraw" }));
    await waitFor(() => expect(requests).toEqual([served.digest]));
  });
});
