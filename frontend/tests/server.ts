import { http, HttpResponse } from "msw";
import { setupServer } from "msw/node";
import * as data from "./data";

const tenant = "/api/tenants/acme";

/** A tenant with one ready adapter; tests replace the answers they are about. */
export const server = setupServer(
  http.get("/version", () => HttpResponse.json({ version: "0.1.0+gf66acf9d" })),
  http.get("/api/session", () => HttpResponse.json(data.session)),
  http.get(`${tenant}/budgets`, () => HttpResponse.json(data.noBudgets)),
  http.get("/api/operator/tenants/:slug/budgets", () => HttpResponse.json(data.noBudgets)),
  http.get("/api/second-factors", () => HttpResponse.json(data.noSecondFactors)),
  http.get(`${tenant}/security`, () => HttpResponse.json({ second_factor_required: false, members_without: 1 })),
  http.get("/api/sessions", () => HttpResponse.json([])),
  http.post(`${tenant}/socket-ticket`, () => HttpResponse.json({ ticket: "once", expires_in: 30 }, { status: 201 })),
  http.get(`${tenant}/overview`, () => HttpResponse.json(data.overview)),
  http.get(`${tenant}/adapters`, () => HttpResponse.json([data.adapter])),
  http.get(`${tenant}/adapters/:name/pin`, () =>
    HttpResponse.json({ pinned_at: null, bytes: null, used_bytes: 0, limit_bytes: null, hosts: [] }),
  ),
  http.get(`${tenant}/pins`, () => HttpResponse.json({ used_bytes: 0, limit_bytes: null, adapters: [], prefixes: [] })),
  http.get(`${tenant}/storage`, () =>
    HttpResponse.json({
      bytes: 1000,
      limit_bytes: null,
      archived_bytes: 0,
      adapters: [{ name: "support", versions: 1, bytes: 1000 }],
      adapter_count: 1,
    }),
  ),
  http.get(`${tenant}/archived-adapters`, () => HttpResponse.json([])),
  http.get(`${tenant}/hub-models`, () => HttpResponse.json({ enabled: false, organizations: [], models: [] })),
  http.get(`${tenant}/follows`, () => HttpResponse.json([])),
  http.get(`${tenant}/bucket-credentials`, () => HttpResponse.json([])),
  http.get(`${tenant}/hub-token`, () => HttpResponse.json({ set: false })),
  http.get(`${tenant}/uploads`, () => HttpResponse.json([])),
  http.get(`${tenant}/models`, () => HttpResponse.json(data.models)),
  http.get(`${tenant}/usage`, () => HttpResponse.json(data.usage)),
  http.get(`${tenant}/series`, () => HttpResponse.json(data.series)),
  http.get(`${tenant}/series/parts`, () => HttpResponse.json([])),
  http.get("/api/operator/series", () => HttpResponse.json(data.series)),
  http.get(`${tenant}/refusals/series`, () => HttpResponse.json(data.noRefusals)),
  http.get("/api/operator/refusals/series", () => HttpResponse.json(data.noRefusals)),
  http.get("/api/operator/fairness", () =>
    HttpResponse.json({ since: "2026-05-04T10:00:00Z", until: "2026-05-04T10:02:00Z", step_s: 60, hosts: [] }),
  ),
  http.get(`${tenant}/keys`, () => HttpResponse.json([data.key])),
);

/** The server's error envelope. */
export const refusal = (status: number, code: string, message: string, fix: string) =>
  HttpResponse.json({ error: { code, message, fix, param: null, request_id: "req_7" } }, { status });
