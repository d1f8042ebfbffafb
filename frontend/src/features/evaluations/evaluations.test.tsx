import { screen, waitFor, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { Evaluation } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { refusal, server } from "../../../tests/server";

const T = "/api/tenants/acme";
const AT = "2026-05-04T10:00:00Z";
const version = { ...data.version, adapter: "support", number: 2, state: "ready" as const, aliases: [] };
const evaluation: Evaluation = {
  id: "11111111-1111-4111-8111-111111111111",
  set: "sums",
  adapter: "support",
  version: 2,
  upload: null,
  key: "ci",
  batch: "batch_1",
  state: "completed",
  problem: null,
  score: {
    evaluation: "11111111-1111-4111-8111-111111111111",
    set: "sums",
    metric: "exact",
    items: 4,
    base: 0.25,
    live: { version: 1, score: 0.5 },
    score: 0.75,
    worst: [{ line: 3, prompt: "The sky is", expected: "blue", base: "red", live: "red", version: "green", score: 0 }],
    at: AT,
  },
  created_at: AT,
  ended_at: AT,
};

function serve(evaluations: Evaluation[], rule: object | null = null) {
  const adapter = { ...data.adapter, versions: [version], aliases: [], promotion_rule: rule };
  server.use(
    http.get(`${T}/adapters/support`, () => HttpResponse.json(adapter)),
    http.get(`${T}/adapters/support/versions/2`, () => HttpResponse.json(version)),
    http.get(`${T}/evaluations`, () => HttpResponse.json(evaluations)),
    http.get(`${T}/evaluation-sets`, () =>
      HttpResponse.json([{ name: "sums", metric: "exact", max_tokens: 64, items: 4, created_at: AT }]),
    ),
  );
}

describe("evaluations of a version", () => {
  it("shows its score beside the live version's and the base's, and what it answered worst", async () => {
    serve([evaluation, { ...evaluation, id: "other", version: 1, set: "of-another" }], {
      set: "sums",
      key: "k",
      minimum: 0.8,
      not_worse_than_live: true,
    });
    openConsole("/t/acme/adapters/support?version=2&tab=quality");
    const section = await screen.findByTestId("evaluations");
    expect(await within(section).findByText("0.750")).toBeVisible();
    expect(section).toHaveTextContent("Live v10.500");
    expect(section).toHaveTextContent("Base0.250");
    expect(section).toHaveTextContent(
      "To be live a version needs a score of at least 0.8 and a score not below the live version’s on sums.",
    );
    expect(section).toHaveTextContent("VersiongreenLiveredBasered");
    expect(section).not.toHaveTextContent("of-another");
  });

  it("keeps a new set and starts an evaluation with it", async () => {
    serve([]);
    let kept: FormData | undefined;
    let requests: unknown;
    server.use(
      http.post(`${T}/evaluation-sets`, async ({ request }) => {
        kept = await request.formData();
        return HttpResponse.json(
          { name: "my-set", metric: "contains", max_tokens: 64, items: 1, created_at: AT },
          { status: 201 },
        );
      }),
      http.post(`${T}/evaluations`, async ({ request }) => {
        requests = await request.json();
        return HttpResponse.json(evaluation, { status: 201 });
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2&tab=quality");
    await user.click(await screen.findByRole("button", { name: "Evaluate" }));
    const dialog = await screen.findByRole("dialog");
    await within(dialog).findByRole("option", { name: "sums (exact, 4 items)" });
    await user.selectOptions(within(dialog).getByLabelText("Evaluation set"), "New set…");
    await user.upload(within(dialog).getByLabelText("File"), new File(["{}"], "My set.jsonl"));
    await user.selectOptions(within(dialog).getByLabelText("Scored by"), "contains");
    await user.click(within(dialog).getByRole("button", { name: "Evaluate" }));
    await waitFor(() => expect(requests).toMatchObject({ set: "my-set", adapter: "support", version: 2 }));
    expect(kept?.get("name")).toBe("my-set");
    expect(kept?.get("metric")).toBe("contains");
  });

  it("makes a new set once, also when the evaluation is refused first, and deletes one that nothing needs", async () => {
    serve([]);
    let made = 0;
    let requests = 0;
    const deleted: string[] = [];
    server.use(
      http.post(`${T}/evaluation-sets`, () => {
        made += 1;
        const words = { name: "words", metric: "exact", max_tokens: 64, items: 1, created_at: AT };
        server.use(http.get(`${T}/evaluation-sets`, () => HttpResponse.json([words])));
        return HttpResponse.json(words, { status: 201 });
      }),
      http.post(`${T}/evaluations`, () =>
        (requests += 1) === 1
          ? refusal(429, "too_many_evaluations", "There are too many.", "Wait.")
          : HttpResponse.json(evaluation, { status: 201 }),
      ),
      http.delete(`${T}/evaluation-sets/:name`, ({ params }) => {
        deleted.push(String(params.name));
        return deleted.length === 1
          ? refusal(409, "evaluation_set_in_use", "A rule names this set.", "Change that rule first.")
          : new HttpResponse(null, { status: 204 });
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2&tab=quality");
    await user.click(await screen.findByRole("button", { name: "Evaluate" }));
    const dialog = await screen.findByRole("dialog");
    await within(dialog).findByRole("option", { name: "sums (exact, 4 items)" });
    await user.click(within(dialog).getByRole("button", { name: "Delete this set" }));
    expect(await within(dialog).findByText("A rule names this set.")).toBeVisible();
    await user.selectOptions(within(dialog).getByLabelText("Evaluation set"), "New set…");
    expect(within(dialog).queryByRole("button", { name: "Delete this set" })).not.toBeInTheDocument();
    await user.upload(within(dialog).getByLabelText("File"), new File(["{}"], "words.jsonl"));
    await user.click(within(dialog).getByRole("button", { name: "Evaluate" }));
    await waitFor(() => expect(requests).toBe(1));
    await user.click(within(dialog).getByRole("button", { name: "Delete this set" }));
    await waitFor(() => expect(deleted).toEqual(["sums", "words"]));
    await user.selectOptions(within(dialog).getByLabelText("Evaluation set"), "words");
    await user.click(within(dialog).getByRole("button", { name: "Evaluate" }));
    await waitFor(() => expect(requests).toBe(2));
    expect(made).toBe(1);
  });

  it("changes of a rule what is changed, and no more", async () => {
    serve([], { set: "words", key: data.key.id, minimum: 0.8, not_worse_than_live: true });
    let requests: unknown;
    server.use(
      http.get(`${T}/evaluation-sets`, () =>
        HttpResponse.json(
          ["sums", "words"].map((name) => ({ name, metric: "exact", max_tokens: 64, items: 4, created_at: AT })),
        ),
      ),
      http.get(`${T}/keys`, () => HttpResponse.json([{ ...data.key, id: "other", name: "another" }, data.key])),
      http.put(`${T}/adapters/support/promotion-rule`, async ({ request }) => {
        requests = await request.json();
        return HttpResponse.json(data.adapter);
      }),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2&tab=quality");
    await user.click(await screen.findByRole("button", { name: "Promotion rule" }));
    const dialog = await screen.findByRole("dialog");
    await waitFor(() => expect(within(dialog).getByLabelText("Evaluation set")).toHaveValue("words"));
    await waitFor(() => expect(within(dialog).getByLabelText("API key")).toHaveTextContent(data.key.name));
    await user.clear(within(dialog).getByLabelText("Minimum score"));
    await user.type(within(dialog).getByLabelText("Minimum score"), "0.9");
    await user.click(within(dialog).getByRole("button", { name: "Set rule" }));
    await waitFor(() =>
      expect(requests).toEqual({ set: "words", key: data.key.id, minimum: 0.9, not_worse_than_live: true }),
    );
  });

  it("says which line of a set is damaged", async () => {
    serve([]);
    server.use(
      http.post(`${T}/evaluation-sets`, () =>
        refusal(400, "bad_evaluation_set", "Line 4 is no item.", "Mend the line."),
      ),
    );
    const { user } = openConsole("/t/acme/adapters/support?version=2&tab=quality");
    await user.click(await screen.findByRole("button", { name: "Evaluate" }));
    const dialog = await screen.findByRole("dialog");
    await within(dialog).findByRole("option", { name: "sums (exact, 4 items)" });
    await user.selectOptions(within(dialog).getByLabelText("Evaluation set"), "New set…");
    await user.upload(within(dialog).getByLabelText("File"), new File(["{"], "x.jsonl"));
    await user.click(within(dialog).getByRole("button", { name: "Evaluate" }));
    expect(await within(dialog).findByText("Line 4 is no item.")).toBeVisible();
  });
});
