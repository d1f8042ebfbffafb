import { oneOf, text } from "@/lib/search-params";

export const DAYS = [1, 7, 30] as const;

/** What the address of an audit log holds: its filters. */
export interface AuditSearch {
  /** For operators: a short name, "-" for what belongs to no tenant. */
  of?: string;
  action?: string;
  actor?: string;
  target?: string;
  /** Days back. */
  days?: (typeof DAYS)[number];
  /** The change whose details are open. */
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
