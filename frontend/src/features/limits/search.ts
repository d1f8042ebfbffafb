/** What the address of the limits page holds: which of its keys. */
export interface KeysSearch {
  q?: string;
  page?: number;
}

export const readLimitsSearch = (search: Record<string, unknown>): KeysSearch => ({
  q: typeof search.q === "string" && search.q !== "" ? search.q : undefined,
  page: Number.isInteger(search.page) && Number(search.page) > 0 ? Number(search.page) : undefined,
});
