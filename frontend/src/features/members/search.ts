import { flag, oneOf, pageIn, text } from "@/lib/search-params";

export const SORTS = ["email", "-email", "role", "-role", "joined_at", "-joined_at"] as const;

/** What the address of the members page holds. */
export interface MembersSearch {
  q?: string;
  sort?: (typeof SORTS)[number];
  page?: number;
  /** The page of invitations, and what is looked for among them. */
  invitations?: number;
  invited?: string;
  /** Begin with a new invitation. */
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
