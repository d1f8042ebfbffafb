import { flag, pageIn, text } from "@/lib/search-params";

/** What the address of the keys page holds. */
export interface KeysSearch {
  q?: string;
  page?: number;
  /** Begin with a new key. */
  create?: true;
}

export const readKeysSearch = (search: Record<string, unknown>): KeysSearch => ({
  q: text(search.q),
  page: pageIn(search.page),
  create: flag(search.create),
});
