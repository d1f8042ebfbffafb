/** Search parameters of the operator's pages. The router reads them before it loads a page. */
import { flag, oneOf, pageIn, text } from "@/lib/search-params";
import { type RangeSearch, readRangeSearch } from "@/lib/time-range";

export const TENANT_STATES = ["active", "suspended", "deleted"] as const;
export const TENANT_SORTS = ["name", "-created_at", "-weight", "-requests"] as const;
export const PHASES = ["queued", "downloading", "verifying", "loading", "failed", "ready"] as const;

export interface TenantsSearch {
  q?: string;
  state?: (typeof TENANT_STATES)[number];
  sort?: (typeof TENANT_SORTS)[number];
  page?: number;
  /** Opens the dialog for a new tenant. */
  create?: true;
}

export const readTenantsSearch = (search: Record<string, unknown>): TenantsSearch => ({
  q: text(search.q),
  state: oneOf(search.state, TENANT_STATES),
  sort: oneOf(search.sort, TENANT_SORTS),
  page: pageIn(search.page),
  create: flag(search.create),
});

export const REPORT_DAYS = [1, 7, 30, 90] as const;

export interface ReportSearch {
  days?: (typeof REPORT_DAYS)[number];
  base_model?: string;
}

export const readReportSearch = (search: Record<string, unknown>): ReportSearch => ({
  days: oneOf(search.days, REPORT_DAYS),
  base_model: text(search.base_model),
});

export interface TenantSearch {
  /** Search and page of the tenant's members. */
  member?: string;
  members?: number;
  /** Search and page of the tenant's adapters. */
  adapter?: string;
  adapters?: number;
}

export const readTenantSearch = (search: Record<string, unknown>): TenantSearch => ({
  member: text(search.member),
  members: pageIn(search.members),
  adapter: text(search.adapter),
  adapters: pageIn(search.adapters),
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
  page: pageIn(search.page),
});

/** The parts of the page of hosts. */
export const HOST_TABS = ["hosts", "models", "fairness", "load", "staging"] as const;
export type HostTab = (typeof HOST_TABS)[number];

export interface HostsSearch extends StagingSearch, RangeSearch {
  tab?: HostTab;
  /** Name of the host whose load is shown. */
  load?: string;
  /** Name of the host whose pages are shown. */
  map?: string;
  /** Name of the host whose shares are shown, if there are many. */
  shares?: string;
  /** Opens the dialog for a new host. */
  add?: true;
}

export const readHostsSearch = (search: Record<string, unknown>): HostsSearch => ({
  ...readStagingSearch(search),
  ...readRangeSearch(search),
  tab: oneOf(search.tab, HOST_TABS),
  load: text(search.load),
  map: text(search.map),
  shares: text(search.shares),
  add: flag(search.add),
});
