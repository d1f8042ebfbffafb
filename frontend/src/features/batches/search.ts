/** What the address of the batches page holds. */
export interface BatchesSearch {
  page?: number;
  /** The page of files. */
  files?: number;
  /** The batch whose details are open. */
  batch?: string;
}

const pageIn = (value: unknown) => (Number.isInteger(value) && Number(value) > 0 ? Number(value) : undefined);

export const readBatchesSearch = (search: Record<string, unknown>): BatchesSearch => ({
  page: pageIn(search.page),
  files: pageIn(search.files),
  batch: typeof search.batch === "string" && search.batch !== "" ? search.batch : undefined,
});
