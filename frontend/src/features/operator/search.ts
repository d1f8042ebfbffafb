/** What the addresses of the operators' pages hold. Read by the router before any of the pages is loaded. */

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);
const oneOf = <T extends string>(value: unknown, known: readonly T[]) => known.find((one) => one === value);
const page = (value: unknown) => (Number.isInteger(value) && Number(value) > 0 ? Number(value) : undefined);

export const TENANT_STATES = ["active", "suspended", "deleted"] as const;
export const TENANT_SORTS = ["name", "-created_at", "-weight", "-requests"] as const;
export const PHASES = ["queued", "downloading", "verifying", "loading", "failed", "ready"] as const;

export interface TenantsSearch {
  q?: string;
  state?: (typeof TENANT_STATES)[number];
  sort?: (typeof TENANT_SORTS)[number];
  page?: number;
}

export const readTenantsSearch = (search: Record<string, unknown>): TenantsSearch => ({
  q: text(search.q),
  state: oneOf(search.state, TENANT_STATES),
  sort: oneOf(search.sort, TENANT_SORTS),
  page: page(search.page),
});

export interface StagingSearch {
  q?: string;
  phase?: (typeof PHASES)[number];
  host?: string;
  page?: number;
}

export const readStagingSearch = (search: Record<string, unknown>): StagingSearch => ({
  q: text(search.q),
  phase: oneOf(search.phase, PHASES),
  host: text(search.host),
  page: page(search.page),
});
