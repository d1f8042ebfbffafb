import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { OperatorHost } from "@/api/types";
import * as data from "../../../tests/data";
import { openConsole } from "../../../tests/render";
import { server } from "../../../tests/server";

const host: OperatorHost = {
  name: "gpu1",
  state: "online",
  service: "serving",
  quarantine: null,
  boot_id: "b1",
  model: "llama",
  device: "cuda",
  running: 0,
  waiting: 0,
  tokens_per_second: 12,
  experts: null,
  pool: { total: 100, free: 100, kv: 0, cached_prefix: 0, adapter: 0, reserved: 0, state: 0 },
  page_bytes: 65536,
  last_seen: "2026-05-04T10:00:00Z",
  adapters: [],
  adapters_total: 0,
  base_digest: "sha256:a",
  only_here: 0,
  joined: null,
  zone: "",
  adapter_readers: 0,
  address: "gpu1:7000",
  last_end: null,
};

it("says why an engine was restarted, and nothing of those that were not", async () => {
  const user = data.session.user && { ...data.session.user, is_operator: true };
  const lost: OperatorHost = {
    ...host,
    name: "gpu2",
    last_end: { reason: "rank 1 (process 7) ended with status -9", at: "2026-05-04T09:00:00Z" },
  };
  const killed: OperatorHost = { ...host, name: "gpu3", last_end: { reason: "it was killed", at: null } };
  server.use(
    http.get("/api/session", () => HttpResponse.json({ ...data.session, user })),
    http.get("/api/operator/hosts", () => HttpResponse.json([host, lost, killed])),
    http.get("/api/operator/join-tokens", () => HttpResponse.json([])),
    http.get("/api/operator/staging", () => HttpResponse.json({ results: [], total: 0, phases: {} })),
    http.get("/api/operator/base-models", () => HttpResponse.json([])),
  );
  openConsole("/t/acme/operator/hosts");
  const [row] = await screen.findAllByLabelText("Host gpu2");
  expect(within(row as HTMLElement).getByRole("note")).toHaveTextContent(
    /ended unexpectedly \(.+\): rank 1 \(process 7\) ended with status -9\.$/,
  );
  expect(screen.getByText(/ended unexpectedly: it was killed\.$/)).toBeVisible();
  expect(screen.getAllByText(/engine was restarted because/)).toHaveLength(2);
});

it("says by how much a host's clock is wrong, and that the others are in step", async () => {
  const user = data.session.user && { ...data.session.user, is_operator: true };
  const hosts = [0.02, -75.26, 0.4, 3600, null].map((ahead, index) => ({
    ...host,
    name: `gpu${index}`,
    clock_ahead_s: ahead,
    engine_version: index === 0 ? "0.1.0+gf66acf9d" : "",
  }));
  server.use(
    http.get("/api/session", () => HttpResponse.json({ ...data.session, user })),
    http.get("/api/operator/hosts", () => HttpResponse.json(hosts)),
    http.get("/api/operator/join-tokens", () => HttpResponse.json([])),
    http.get("/api/operator/staging", () => HttpResponse.json({ results: [], total: 0, phases: {} })),
    http.get("/api/operator/base-models", () => HttpResponse.json([])),
  );
  openConsole("/t/acme/operator/hosts");
  const row = async (name: string) => (await screen.findAllByLabelText(`Host ${name}`))[0];
  expect(await row("gpu0")).toHaveTextContent("0 adapters, clock in step, version 0.1.0+gf66acf9d");
  expect(await row("gpu1")).toHaveTextContent("Its clock is 75.3 s behind the database’s.");
  expect(await row("gpu2")).toHaveTextContent("clock 0.4 s ahead");
  expect(await row("gpu3")).toHaveTextContent("Its clock is 60 min ahead of the database’s.");
  expect(await row("gpu4")).not.toHaveTextContent("clock");
});
