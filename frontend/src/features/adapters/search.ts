export const STATUSES = ["ready", "staging", "failed"] as const;
export const SORTS = ["name", "-name", "rank", "-rank", "bytes", "-bytes", "created_at", "-created_at"] as const;

/** What the address of the adapters page holds. */
export interface AdaptersSearch {
  q?: string;
  status?: (typeof STATUSES)[number];
  sort?: (typeof SORTS)[number];
  page?: number;
}

const oneOf = <T extends string>(known: readonly T[], value: unknown) => known.find((each) => each === value);

export const readAdaptersSearch = (search: Record<string, unknown>): AdaptersSearch => ({
  q: typeof search.q === "string" && search.q !== "" ? search.q : undefined,
  status: oneOf(STATUSES, search.status),
  sort: oneOf(SORTS, search.sort),
  page: Number.isInteger(search.page) && Number(search.page) > 0 ? Number(search.page) : undefined,
});
