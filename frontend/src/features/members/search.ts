import { flag, oneOf, pageIn, text } from "@/lib/search-params";

export const SORTS = ["email", "-email", "role", "-role", "joined_at", "-joined_at"] as const;

/** Search parameters of the members page. */
export interface MembersSearch {
  q?: string;
  sort?: (typeof SORTS)[number];
  page?: number;
  /** Page and search of the invitations. */
  invitations?: number;
  invited?: string;
  /** Opens the dialog for a new invitation. */
  invite?: true;
}

export const readMembersSearch = (search: Record<string, unknown>): MembersSearch => ({
  q: text(search.q),
  sort: oneOf(search.sort, SORTS),
  page: pageIn(search.page),
  invitations: pageIn(search.invitations),
  invited: text(search.invited),
  invite: flag(search.invite),
});
