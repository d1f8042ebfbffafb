import { flag, pageIn, text } from "@/lib/search-params";

/** Search parameters of the keys page. */
export interface KeysSearch {
  q?: string;
  page?: number;
  /** Opens the dialog for a new key. */
  create?: true;
}

export const readKeysSearch = (search: Record<string, unknown>): KeysSearch => ({
  q: text(search.q),
  page: pageIn(search.page),
  create: flag(search.create),
});
