import { flag, oneOf, pageIn, text } from "@/lib/search-params";

export const SORTS = [
  "name",
  "-name",
  "created_at",
  "-created_at",
  "last_used_at",
  "-last_used_at",
  "expires_at",
  "-expires_at",
] as const;
export const DEFAULT_SORT = "-created_at";

/** Search parameters of the keys page. */
export interface KeysSearch {
  q?: string;
  page?: number;
  sort?: (typeof SORTS)[number];
  /** Lists the revoked keys instead of the others. */
  revoked?: true;
  /** Opens the dialog for a new key. */
  create?: true;
}

export const readKeysSearch = (search: Record<string, unknown>): KeysSearch => ({
  q: text(search.q),
  page: pageIn(search.page),
  sort: oneOf(search.sort, SORTS),
  revoked: flag(search.revoked),
  create: flag(search.create),
});
