/** What the address of the keys page holds. */
export interface KeysSearch {
  q?: string;
  page?: number;
  /** Begin with a new key. */
  create?: true;
}

export const readKeysSearch = (search: Record<string, unknown>): KeysSearch => ({
  q: typeof search.q === "string" && search.q !== "" ? search.q : undefined,
  page: Number.isInteger(search.page) && Number(search.page) > 0 ? Number(search.page) : undefined,
  create: search.create === true ? true : undefined,
});
