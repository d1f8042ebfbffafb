// @vitest-environment node
import { QueryClient } from "@tanstack/react-query";
import { describe, expect, it } from "vitest";
import type { StagingEvent, Version } from "@/api/types";
import * as data from "../../tests/data";
import { applyEvent, mergePlacement } from "./live-cache";

const KEY = ["t", "acme", "adapters", "fresh", "versions", 1];

function staging(client: QueryClient, event: Partial<StagingEvent>) {
  const full: StagingEvent = {
    adapter: "fresh",
    version: 1,
    state: "staging",
    placement: data.placement,
    bytes_per_second: 0,
    ...event,
  };
  applyEvent(client, "acme", { seq: 1, event: "adapter.staging", data: full });
  return client.getQueryData<Version>(KEY);
}

describe("live events", () => {
  it("write progress and rate into the version", () => {
    const client = new QueryClient();
    client.setQueryData(KEY, data.version);
    const after = staging(client, { placement: { ...data.placement, bytes_done: 75 }, bytes_per_second: 50 });
    expect(after?.placements).toEqual([{ ...data.placement, bytes_done: 75, rate: 50 }]);
  });

  it("make the version ready", () => {
    const client = new QueryClient();
    client.setQueryData(KEY, data.version);
    expect(staging(client, { state: "ready", placement: { ...data.placement, phase: "ready" } })?.state).toBe("ready");
  });

  it("do not invent what was never read", () => {
    expect(staging(new QueryClient(), {})).toBeUndefined();
  });

  it("do nothing for an event of a newer server", () => {
    expect(() => applyEvent(new QueryClient(), "acme", { seq: 1, event: "quota.changed", data: {} })).not.toThrow();
  });

  it("change an upload in the list, and read the list again for a new one", () => {
    const client = new QueryClient();
    const list = ["t", "acme", "uploads"];
    const other = { ...data.upload, id: "other" };
    client.setQueryData(list, [data.upload, other]);
    const receive = (upload: object) => applyEvent(client, "acme", { seq: 1, event: "upload.updated", data: upload });
    receive({ ...data.upload, state: "refused" });
    expect(client.getQueryData(list)).toEqual([{ ...data.upload, state: "refused" }, other]);
    expect(client.getQueryState(list)?.isInvalidated).toBe(false);
    receive({ ...data.upload, id: "new" });
    expect(client.getQueryState(list)?.isInvalidated).toBe(true);
  });

  it("add a host that was not there", () => {
    const other = { ...data.placement, host: "gpu-2" };
    expect(mergePlacement([data.placement], other)).toEqual([data.placement, other]);
  });
});
