import { flag, pageIn, text } from "@/lib/search-params";

/** What the address of the batches page holds. */
export interface BatchesSearch {
  page?: number;
  /** The page of files. */
  files?: number;
  /** The batch whose details are open. */
  batch?: string;
  /** Begin with a new one. */
  add?: true;
}

export const readBatchesSearch = (search: Record<string, unknown>): BatchesSearch => ({
  page: pageIn(search.page),
  files: pageIn(search.files),
  batch: text(search.batch),
  add: flag(search.add),
});
