import { act, screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import type { Refusal, RequestRecord } from "@/api/types";
import * as data from "../../../tests/data";
import { FakeSocket } from "../../../tests/fake-socket";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const tenant = "/api/tenants/acme";
const row: RequestRecord = {
  id: "req_1",
  created_at: "2026-05-04T10:00:00Z",
  model: "support",
  adapter: "support",
  version: 1,
  base_model: "lorikeet-demo",
  endpoint: "chat.completions",
  streamed: true,
  batch: false,
  outcome: "finished",
  error_code: "",
  host: "gpu-1",
  key: "backend",
  prompt_tokens: 4,
  cached_prompt_tokens: 0,
  completion_tokens: 9,
  queue_ms: 0,
  adapter_load_ms: 0,
  drafted_tokens: 0,
  accepted_tokens: 0,
  first_token_ms: 0,
  prefill_ms: 0,
  decode_ms: 12,
  auth_ms: 0,
  quota_ms: 0,
  preemptions: 0,
  preempted_ms: 0,
  preemption_spans: [],
  ignored: [],
  schema_violations: [],
  adapter_loaded_from: "",
  finish_reason: "stop",
  cost_micros: null,
  currency: null,
};
const refusal: Refusal = {
  id: 1,
  minute: "2026-05-04T10:00:00Z",
  last_at: "2026-05-04T10:00:30Z",
  count: 312,
  status: 429,
  code: "rate_limit_exceeded",
  limit: "requests_per_minute",
  endpoint: "chat.completions",
  key: null,
  model: "support",
  param: "",
};

function serve({ enabled = true, capabilities = [] as string[] } = {}) {
  const membership = data.session.tenants[0];
  const may = membership && { ...membership, capabilities: [...membership.capabilities, ...capabilities] };
  server.use(
    http.get("/api/session", () => HttpResponse.json({ ...data.session, tenants: [may] })),
    http.get(`${tenant}/requests`, () => HttpResponse.json({ results: [row], next_cursor: null })),
    http.get(`${tenant}/refusals`, () => HttpResponse.json({ results: [refusal], next_cursor: null })),
    http.get(`${tenant}/recording`, () => HttpResponse.json({ enabled, days: 7 })),
  );
}

const text = { prompt: [{ role: "user", content: "Where is my parcel?" }], answers: ["On its way."], cut: true };

describe("the request log", () => {
  it("shows requests that failed, with the reason and what was received", async () => {
    serve();
    const failed: RequestRecord = {
      ...row,
      id: "req_2",
      outcome: "failed",
      error_code: "engine_disconnected",
      prompt_tokens: 0,
      completion_tokens: 7,
      decode_ms: 0,
    };
    server.use(http.get(`${tenant}/requests`, () => HttpResponse.json({ results: [failed, row], next_cursor: null })));
    openConsole("/t/acme/requests");
    const line = (await screen.findByRole("button", { name: "Details of request req_2" })).closest("tr");
    expect(line).toHaveTextContent("failedengine_disconnectedbackendchatstop0 → 7–––");
  });

  it("says from when on requests are listed", async () => {
    serve();
    const last = { results: [row], next_cursor: null, archived_before: "2026-05-01" };
    server.use(http.get(`${tenant}/requests`, () => HttpResponse.json(last)));
    openConsole("/t/acme/requests");
    expect(await screen.findByText(/Requests before 2026-05-01 are archived/)).toBeVisible();
  });

  it("counts what was refused, by reason", async () => {
    serve();
    const { user } = openConsole("/t/acme/requests");
    await user.click(await screen.findByRole("radio", { name: "Refusals" }));
    expect(await screen.findByText("312")).toBeVisible();
    expect(screen.getByText("rate_limit_exceeded")).toBeVisible();
    expect(screen.getByText("requests per minute")).toBeVisible();
    expect(screen.getByText("the console")).toBeVisible();
  });

  it("shows a first token that took less than half a millisecond", async () => {
    serve();
    openConsole("/t/acme/requests");
    expect(await screen.findByText("< 1 ms")).toBeInTheDocument();
    expect(await screen.findByText(/Prompts and answers are kept for 7 days/)).toBeVisible();
  });

  it("shows the text to those who may read it", async () => {
    serve({ capabilities: ["transcripts.read"] });
    server.use(http.get(`${tenant}/transcripts`, () => HttpResponse.json([text])));
    const { user } = openConsole("/t/acme/requests");
    await user.click(await screen.findByRole("button", { name: "Details of request req_1" }));
    expect(await screen.findByText("Where is my parcel?")).toBeVisible();
    expect(screen.getByText("On its way.")).toBeVisible();
    expect(screen.getByText(/too long to store in full/)).toBeVisible();
    expect(screen.queryByRole("link", { name: "Replay in the playground" })).toBeNull();
  });

  it("opens a kept request in the playground", async () => {
    serve({ capabilities: ["transcripts.read", "infer"] });
    server.use(http.get(`${tenant}/transcripts`, () => HttpResponse.json([{ ...text, cut: false }])));
    const { user } = openConsole("/t/acme/requests");
    await user.click(await screen.findByRole("button", { name: "Details of request req_1" }));
    expect(await screen.findByRole("link", { name: "Replay in the playground" })).toHaveAttribute(
      "href",
      expect.stringMatching(/playground\?model=support%40v1&request=req_1/),
    );
  });

  it("opens the version that answered where no text may be read", async () => {
    serve({ capabilities: ["infer"] });
    const { user } = openConsole("/t/acme/requests");
    await user.click(await screen.findByRole("button", { name: "Details of request req_1" }));
    expect(await screen.findByRole("link", { name: "Open the model in the playground" })).toHaveAttribute(
      "href",
      expect.stringMatching(/playground\?model=support%40v1$/),
    );
  });

  it("says why there is none", async () => {
    serve({ enabled: false, capabilities: ["transcripts.read"] });
    server.use(http.get(`${tenant}/transcripts`, () => HttpResponse.json([])));
    const { user } = openConsole("/t/acme/requests");
    await user.click(await screen.findByRole("button", { name: "Details of request req_1" }));
    expect(await screen.findByText(/Recording is off/)).toBeVisible();
  });

  it("asks for no text on behalf of those who may not", async () => {
    serve();
    const { user } = openConsole("/t/acme/requests");
    await user.click(await screen.findByRole("button", { name: "Details of request req_1" }));
    expect(await screen.findByText("Cached prompt tokens")).toBeVisible();
    expect(screen.queryByText(/not kept\. /)).not.toBeInTheDocument();
  });
});

describe("the choice to keep text", () => {
  it("is off until somebody turns it on", async () => {
    serve({ enabled: false, capabilities: ["transcripts.write"] });
    const sent: unknown[] = [];
    server.use(
      http.put(`${tenant}/recording`, async ({ request }) => {
        sent.push(await request.json());
        return HttpResponse.json({ enabled: true, days: 3 });
      }),
    );
    const { user } = openConsole("/t/acme/settings");
    const days = await screen.findByTestId("recording-days");
    await user.clear(days);
    await user.type(days, "400");
    await user.click(screen.getByTestId("recording-toggle"));
    expect(await screen.findByText("Days from 1 to 365.")).toBeVisible();
    await user.clear(days);
    await user.type(days, "3");
    await user.click(screen.getByTestId("recording-toggle"));
    expect(await screen.findByText("kept for 3 days")).toBeVisible();
    expect(sent).toEqual([{ enabled: true, days: 3 }]);
  });

  it("is not for everybody", async () => {
    serve({ enabled: false });
    openConsole("/t/acme/settings");
    expect(await screen.findByText("Admins of the tenant can change this.")).toBeVisible();
  });

  it("keeps its filters in the address, and asks the server with them", async () => {
    serve();
    const requests: URLSearchParams[] = [];
    server.use(
      http.get(`${tenant}/requests`, ({ request }) => {
        requests.push(new URL(request.url).searchParams);
        return HttpResponse.json({ results: [row], next_cursor: null });
      }),
    );
    const { user, router } = openConsole("/t/acme/requests?outcome=failed&last=1h&min_ms=1000");
    expect(await screen.findByText("support")).toBeInTheDocument();
    expect(Object.fromEntries(requests[0]!)).toMatchObject({ outcome: "failed", min_ms: "1000", limit: "50" });
    expect(Date.now() - Date.parse(requests[0]!.get("since")!)).toBeLessThan(3_700_000);
    await user.selectOptions(screen.getByRole("combobox", { name: "Tokens" }), "4000");
    await waitFor(() => expect(requests.at(-1)!.get("min_tokens")).toBe("4000"));
    expect(router.state.location.search).toEqual({ outcome: "failed", last: "1h", min_ms: 1000, min_tokens: 4000 });
    await user.type(screen.getByRole("searchbox", { name: "Model or request ID" }), "req_9f2");
    await waitFor(() => expect(requests.at(-1)!.get("id")).toBe("req_9f2"));
    await user.click(screen.getByRole("button", { name: "Clear filters" }));
    await waitFor(() => expect([...requests.at(-1)!.keys()]).toEqual(["limit"]));
  });

  it("finds a part of an adapter's name, a whole name in quotation marks, and any key by searching", async () => {
    serve();
    const requests: URLSearchParams[] = [];
    server.use(
      http.get(`${tenant}/requests`, ({ request }) => {
        requests.push(new URL(request.url).searchParams);
        return HttpResponse.json({ results: [row], next_cursor: null });
      }),
      http.get(`${tenant}/keys`, ({ request }) =>
        new URL(request.url).searchParams.get("search") === "night"
          ? HttpResponse.json([{ ...data.key, id: "k9", name: "nightly" }])
          : HttpResponse.json([data.key], { headers: { "X-Total-Count": "4221" } }),
      ),
    );
    const { user, router } = openConsole("/t/acme/requests?adapter=support");
    const adapter = await screen.findByRole("searchbox", { name: "Adapter" });
    expect(adapter).toHaveValue('"support"');
    expect(requests.at(-1)!.get("adapter")).toBe("support");
    await user.clear(adapter);
    await user.type(adapter, "supp");
    await waitFor(() => expect(requests.at(-1)!.get("adapter_contains")).toBe("supp"));
    expect(requests.at(-1)!.has("adapter")).toBe(false);
    await user.click(screen.getByRole("combobox", { name: "Key" }));
    await user.type(await screen.findByPlaceholderText("Search by name or key prefix"), "night");
    await user.click(await screen.findByRole("option", { name: /nightly/ }));
    await waitFor(() => expect(requests.at(-1)!.get("key")).toBe("k9"));
    expect(router.state.location.search).toEqual({ adapter_contains: "supp", key: "k9" });
  });

  it("says which answers were cut off, and keeps the chosen columns in this browser", async () => {
    localStorage.clear();
    serve();
    const cut = { ...row, id: "req_cut", finish_reason: "length", cost_micros: 1200, currency: "EUR" };
    server.use(http.get(`${tenant}/requests`, () => HttpResponse.json({ results: [cut, row], next_cursor: null })));
    const { user } = openConsole("/t/acme/requests");
    expect(await screen.findAllByText("cut off")).toHaveLength(1);
    const titles = () => screen.getAllByRole("columnheader").map((title) => title.textContent);
    for (const title of ["Key", "Endpoint", "Finish reason", "Cost"]) expect(titles()).toContain(title);
    expect(titles()).not.toContain("Host");
    await user.click(screen.getByTestId("columns"));
    await user.click(await screen.findByRole("checkbox", { name: "Host" }));
    await user.click(screen.getByRole("checkbox", { name: "Cost" }));
    await waitFor(() => expect(titles()).toContain("Host"));
    expect(titles()).not.toContain("Cost");
    expect(localStorage.getItem("lorikeet.columns.requests")).toBe(
      "key,endpoint,finish,host,tokens,first_token,total,when",
    );
    await user.click(screen.getByRole("button", { name: "Reset" }));
    expect(titles()).toContain("Cost");
    expect(localStorage.getItem("lorikeet.columns.requests")).toBeNull();
  });

  it("folds its filters behind a button, with their number, on a phone", async () => {
    serve();
    const { user } = openConsole("/t/acme/requests?outcome=finished&host=gpu-1");
    const button = await screen.findByRole("button", { name: "Filters (2)" });
    expect(button).toHaveAttribute("aria-expanded", "false");
    await user.click(button);
    expect(button).toHaveAttribute("aria-expanded", "true");
  });

  it("shows those of one base model", async () => {
    serve();
    const requests: URLSearchParams[] = [];
    server.use(
      http.get(`${tenant}/requests`, ({ request }) => {
        requests.push(new URL(request.url).searchParams);
        return HttpResponse.json({ results: [row], next_cursor: null });
      }),
    );
    const { user } = openConsole("/t/acme/requests?base_model=withdrawn");
    const choice = await screen.findByRole("combobox", { name: "Base model" });
    expect(choice).toHaveDisplayValue("withdrawn");
    expect(requests[0]!.get("base_model")).toBe("withdrawn");
    await user.selectOptions(choice, "Any base model");
    await waitFor(() => expect(requests.at(-1)!.has("base_model")).toBe(false));
  });

  it("opens a row wherever it is clicked, keeps that in the address, and shows the phases one after another", async () => {
    serve();
    server.use(
      http.get(`${tenant}/requests`, () =>
        HttpResponse.json({
          results: [{ ...row, queue_ms: 20, adapter_load_ms: 30, prefill_ms: 50, decode_ms: 400, first_token_ms: 100 }],
          next_cursor: null,
        }),
      ),
    );
    const { user, router } = openConsole("/t/acme/requests");
    await user.click(await screen.findByText("support"));
    const waterfall = await screen.findByTestId("waterfall");
    expect(waterfall).toHaveTextContent("Prefill50 ms at 50 ms");
    expect(waterfall).toHaveTextContent("Decode400 ms at 100 ms");
    expect(waterfall).toHaveTextContent("First token (the line)at 100 ms");
    expect(router.state.location.search).toEqual({ open: "req_1" });
    await user.click(screen.getByText("support"));
    await waitFor(() => expect(screen.queryByTestId("waterfall")).toBeNull());
  });

  it("shows what came before an engine had it, the tier, pre-emptions, cost and why it ended", async () => {
    const times = {
      auth_ms: 6,
      quota_ms: 4,
      queue_ms: 20,
      adapter_load_ms: 30,
      prefill_ms: 50,
      decode_ms: 400,
      first_token_ms: 100,
    };
    const away = {
      preemptions: 2,
      preempted_ms: 90,
      preemption_spans: [
        { at_ms: 150, ms: 60 },
        { at_ms: 300, ms: 30 },
      ],
    };
    const full = {
      ...row,
      ...times,
      ...away,
      adapter_loaded_from: "disk",
      finish_reason: "length",
      drafted_tokens: 12,
      accepted_tokens: 9,
      cost_micros: 420,
      currency: "EUR",
    };
    serve();
    server.use(http.get(`${tenant}/requests`, () => HttpResponse.json({ results: [full], next_cursor: null })));
    openConsole("/t/acme/requests?open=req_1");
    const waterfall = await screen.findByTestId("waterfall");
    for (const line of [
      "Key and adapter6 ms at 0 ms",
      "Limits4 ms at 6 ms",
      "Queue20 ms at 10 ms",
      "Adapter from disk30 ms at 30 ms",
      "Prefill50 ms at 60 ms",
      "Decode400 ms at 110 ms",
      "Pre-empted 2 times90 ms at 160 ms",
      "60 ms at 160 ms, 30 ms at 310 ms",
      "First token (the line)at 110 ms",
    ])
      expect(waterfall).toHaveTextContent(line);
    expect(screen.getByText("9 of 12 (75%)")).toBeVisible();
    expect(screen.getAllByText("€0.00042")).toHaveLength(2);
    expect(screen.getByText("length: max_tokens or the context limit")).toBeVisible();
  });
});

describe("the live list", () => {
  const at = (id: string): RequestRecord => ({ ...row, id });
  const tick = (seq: number) =>
    act(() => FakeSocket.last.receive({ type: "event", seq, event: "usage.tick", data: {} }));

  async function follow(path: string) {
    serve();
    const listed = [at("req_1")];
    const requests: URLSearchParams[] = [];
    server.use(
      http.get(`${tenant}/requests`, ({ request }) => {
        requests.push(new URL(request.url).searchParams);
        return HttpResponse.json({ results: listed, next_cursor: null });
      }),
    );
    const opened = openConsole(path);
    await screen.findByRole("button", { name: "Details of request req_1" });
    await waitFor(() => expect(FakeSocket.opened).toHaveLength(1));
    await act(async () => {
      FakeSocket.last.accept();
      await Promise.resolve();
    });
    await waitFor(() => expect(FakeSocket.last.of("auth")).toHaveLength(1));
    act(() => FakeSocket.last.receive({ type: "hello", seq: 0 }));
    return { ...opened, listed, requests };
  }

  it("shows what ends, with the filters, and asks once for many events", async () => {
    const { listed, requests } = await follow("/t/acme/requests?outcome=failed");
    expect(await screen.findByText("Live: requests appear as they end")).toBeVisible();
    const before = requests.length;
    listed.unshift(at("req_2"));
    for (let seq = 1; seq <= 20; seq += 1) tick(seq);
    expect(await screen.findByRole("button", { name: "Details of request req_2" })).toBeVisible();
    expect(requests.length - before).toBe(1);
    expect(requests.at(-1)!.get("outcome")).toBe("failed");
  });

  it("stands still while it is paused, and counts", async () => {
    const { listed, user, router } = await follow("/t/acme/requests");
    await user.click(screen.getByTestId("tail"));
    await waitFor(() => expect(router.state.location.search).toEqual({ paused: true }));
    listed.unshift(at("req_2"));
    tick(1);
    tick(2);
    expect(await screen.findByText("Paused: 2 requests ended in the meantime")).toBeVisible();
    expect(screen.queryByRole("button", { name: "Details of request req_2" })).toBeNull();
    await user.click(screen.getByTestId("tail"));
    expect(await screen.findByRole("button", { name: "Details of request req_2" })).toBeVisible();
    expect(router.state.location.search).toEqual({});
  });
});
