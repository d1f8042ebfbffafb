import { flag, pageIn, text } from "@/lib/search-params";

/** Search parameters of the batches page. */
export interface BatchesSearch {
  page?: number;
  /** Page of the list of files. */
  files?: number;
  /** ID of the batch whose details are open. */
  batch?: string;
  /** Opens the dialog for a new batch. */
  add?: true;
}

export const readBatchesSearch = (search: Record<string, unknown>): BatchesSearch => ({
  page: pageIn(search.page),
  files: pageIn(search.files),
  batch: text(search.batch),
  add: flag(search.add),
});
