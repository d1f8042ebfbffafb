import { flag, text } from "@/lib/search-params";

/** What the address of the webhooks page holds. */
export interface WebhooksSearch {
  /** Begin with a new one. */
  add?: true;
  /** The message whose details are open. */
  delivery?: string;
}

export const readWebhooksSearch = (search: Record<string, unknown>): WebhooksSearch => ({
  add: flag(search.add),
  delivery: text(search.delivery),
});
