import { oneOf, text } from "@/lib/search-params";

export const DAYS = [1, 7, 30] as const;

/** Search parameters of an audit log: its filters. */
export interface AuditSearch {
  /** Short name of a tenant, for operators; "-" selects rows that belong to no tenant. */
  of?: string;
  action?: string;
  actor?: string;
  target?: string;
  /** Number of days back from now. */
  days?: (typeof DAYS)[number];
  /** ID of the row whose details are open. */
  open?: number;
}

export const readAuditSearch = (search: Record<string, unknown>): AuditSearch => ({
  of: text(search.of),
  action: text(search.action),
  actor: text(search.actor),
  target: text(search.target),
  days: oneOf(search.days, DAYS),
  open: Number.isInteger(search.open) ? Number(search.open) : undefined,
});
