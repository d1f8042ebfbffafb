import type { QueryClient } from "@tanstack/react-query";
import type { Adapter, Host, Overview, Placement, StagingEvent, Upload, Version } from "@/api/types";
import type { LiveEvent } from "@/lib/event-stream";

type Data = Record<string, unknown>;
type Apply = (client: QueryClient, tenant: string, data: never) => void;

/**
 * Writes the data of a live event into the query caches that show it, and invalidates the queries that it affects
 * otherwise.
 */
const APPLY: Record<string, Apply> = {
  "upload.updated": applyUpload,
  "adapter.staging": applyStaging,
  "adapter.updated": applyAdapter,
  "host.status": applyHost,
  "usage.tick": applyUsage,
  "tenant.updated": (client) => void client.invalidateQueries({ queryKey: ["session"] }),
  "limits.updated": (client, tenant) => void client.invalidateQueries({ queryKey: ["t", tenant, "limits"] }),
  "budgets.updated": (client, tenant) => void client.invalidateQueries({ queryKey: ["t", tenant, "budgets"] }),
  "recording.updated": (client, tenant) => void client.invalidateQueries({ queryKey: ["t", tenant, "recording"] }),
  "pins.updated": (client, tenant) => void client.invalidateQueries({ queryKey: ["t", tenant, "pins"] }),
  "refusals.updated": (client, tenant) => void client.invalidateQueries({ queryKey: ["t", tenant, "refusals"] }),
  "slo.updated": (client, tenant) => void client.invalidateQueries({ queryKey: ["t", tenant, "slo"] }),
};

export function applyEvent(client: QueryClient, tenant: string, event: LiveEvent): void {
  APPLY[event.event]?.(client, tenant, event.data as never);
}

/** Invalidates all queries of the tenant after events were lost. */
export function refreshTenant(client: QueryClient, tenant: string): void {
  void client.invalidateQueries({ queryKey: ["t", tenant] });
}

function applyUpload(client: QueryClient, tenant: string, upload: Upload): void {
  client.setQueryData(["t", tenant, "uploads", upload.id], upload);
  const list = ["t", tenant, "uploads"];
  const listed = client.getQueryData<Upload[]>(list)?.some(({ id }) => id === upload.id);
  // A query in flight may return the state before the event.
  if (!listed || client.isFetching({ queryKey: list, exact: true }))
    void client.invalidateQueries({ queryKey: list, exact: true });
  else client.setQueryData<Upload[]>(list, (uploads) => uploads?.map((old) => (old.id === upload.id ? upload : old)));
  if (upload.state === "accepted")
    for (const noun of ["adapters", "adapter-list"]) void client.invalidateQueries({ queryKey: ["t", tenant, noun] });
}

function applyStaging(client: QueryClient, tenant: string, event: StagingEvent): void {
  const key = ["t", tenant, "adapters", event.adapter];
  const placement = { ...event.placement, rate: event.bytes_per_second };
  const change = (version: Version) => ({
    ...version,
    state: event.state,
    placements: mergePlacement(version.placements, placement),
  });
  const ended = event.placement.phase === "ready" || event.placement.phase === "failed";
  client.setQueryData<Version>([...key, "versions", event.version], (version) => version && change(version));
  client.setQueryData<Adapter>(
    key,
    (adapter) =>
      adapter && {
        ...adapter,
        versions: adapter.versions.map((version) =>
          version.number === event.version ? { ...version, state: event.state } : version,
        ),
      },
  );
  if (ended)
    void client.invalidateQueries({ queryKey: ["t", tenant], predicate: ({ queryKey }) => queryKey[2] !== "uploads" });
}

/** Replaces the placement of one host, or adds it. */
export function mergePlacement(placements: Placement[], next: Placement): Placement[] {
  const known = placements.some(({ host }) => host === next.host);
  return known
    ? placements.map((placement) => (placement.host === next.host ? next : placement))
    : [...placements, next];
}

function applyAdapter(client: QueryClient, tenant: string, adapter: Data): void {
  void client.invalidateQueries({ queryKey: ["t", tenant, "adapters", adapter.name] });
  for (const noun of ["adapter-list", "models", "overview", "storage", "archived-adapters"])
    void client.invalidateQueries({ queryKey: ["t", tenant, noun] });
}

function applyHost(client: QueryClient, tenant: string, host: Host): void {
  const replace = (hosts: Host[]) =>
    hosts.some(({ name }) => name === host.name)
      ? hosts.map((old) => (old.name === host.name ? host : old))
      : [...hosts, host];
  client.setQueryData<Host[]>(["t", tenant, "hosts"], (hosts) => hosts && replace(hosts));
  client.setQueryData<Overview>(
    ["t", tenant, "overview"],
    (overview) => overview && { ...overview, hosts: replace(overview.hosts) },
  );
}

const USAGE_EVERY_MS = 2000;
const waiting = new Map<string, ReturnType<typeof setTimeout>>();

/** Invalidates the queries that show sums after a request ended, at most every two seconds. */
function applyUsage(client: QueryClient, tenant: string): void {
  // The list of requests reads its new rows itself (use-tail.ts). Other queries are read again when they are shown.
  void client.invalidateQueries({ queryKey: ["t", tenant, "requests"], refetchType: "none" });
  if (waiting.has(tenant)) return;
  const read = () => {
    for (const noun of ["overview", "usage"]) void client.invalidateQueries({ queryKey: ["t", tenant, noun] });
  };
  read();
  waiting.set(
    tenant,
    setTimeout(() => {
      waiting.delete(tenant);
      read();
    }, USAGE_EVERY_MS),
  );
}
