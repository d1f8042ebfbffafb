import { flag, text } from "@/lib/search-params";

/** Search parameters of the webhooks page. */
export interface WebhooksSearch {
  /** Opens the dialog for a new webhook. */
  add?: true;
  /** ID of the delivery whose details are open. */
  delivery?: string;
}

export const readWebhooksSearch = (search: Record<string, unknown>): WebhooksSearch => ({
  add: flag(search.add),
  delivery: text(search.delivery),
});
